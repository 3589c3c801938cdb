/* The C interface of libheterog: the verbs that plan and explain, and a plan run step by step on
   tensors of the caller. */
#ifndef HETEROG_CLIENT_HETEROG_H
#define HETEROG_CLIENT_HETEROG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a struct or a function below changes its form, or a function is added. */
#define HETEROG_API_VERSION 8
int32_t heterog_api_version(void);

/* Every other function returns 0, or the exit code that the program `heterog` would end with: 1 a
   bug, 2 bad input, 3 no plan fits, 4 the run failed. Then this is why, in one line, until the
   calling thread's next call; a null pointer where something is needed is bad input. Functions of
   one runner are called by one thread at a time. */
const char* heterog_last_error(void);

/* Runs a verb as the program `heterog` does with these arguments ("plan", "--graph", "F", …): plan,
   simulate, compare, shares, explain, diff, report, verify or planners. `output` becomes what the
   program would print on stdout, also where it then fails; it stays until the calling thread's next
   verb. The process is left as it is: nothing is printed, no process started, no variable that says
   that it is a rank is read. Where several threads run verbs, each waits for the one before. While
   `stop`, which may be null, points to something else than 0, the verb gives up, at its next
   simulated plan or step, with code 4. */
int32_t heterog_run_verb(const char* const* arguments, int32_t count, const int32_t* stop,
                         const char** output);

/* Who hears what verbs and runners log, a line without its end at a time, from any thread; null:
   nobody. Level: 1 debug, 2 info, 3 warning, 4 error; which of them are logged says --log-level of
   the latest verb. */
typedef void (*heterog_listener)(int32_t level, const char* line);
void heterog_log_to(heterog_listener listener);

/* Elements in memory of the caller, row-major. */
typedef struct heterog_tensor {
  void* data;
  const int64_t* sizes;
  int32_t dimensions;
  const char* dtype;  /* "float32", as in graph files */
  const char* device; /* where they lie: null or "cpu"; of inputs also "cuda:0" and so on */
} heterog_tensor;

typedef struct heterog_options {
  const char* graph; /* files */
  const char* cluster;
  const char* plan;
  const char* collectives; /* "per-device" or "serial" */
  const char* const* profiles;
  int32_t profile_count;
  /* Of the same step on inputs of other sizes, which run the same plan. */
  const char* const* more_graphs;
  int32_t more_graph_count;
  int32_t threads;                 /* of one operator; 0: an equal share of the processors */
  uint64_t seed;                   /* of dropout */
  const char* const* slow_devices; /* by name, which repeat their work … */
  const int32_t* slow_factors;     /* … so many times */
  int32_t slow_count;
  int32_t one_rank;       /* this process is one rank, as its starter's variables say */
  int32_t earlier;        /* runners that this process has made before; the same on all ranks */
  int32_t any_device;     /* ranks may be other devices than the plan's, threads of a CPU too */
  double timeout_seconds; /* of one wait for another rank */
  const char* transport;  /* of ranks that are processes: "tcp", "gloo" */
  const char* terms;      /* whatever else must be the same on all ranks */
  /* May set what holds for the whole process, from then on: thresholds of malloc, so that a step
     keeps its memory; no log lines of c10d below fatal ones; NCCL_RUNTIME_CONNECT=0. */
  int32_t tune_process;
} heterog_options;

typedef struct heterog_runner heterog_runner;

typedef struct heterog_info {
  int64_t batch;
  int32_t ranks;
  int32_t rank; /* of this process; 0 where ranks are threads */
  double predicted_step_seconds;
} heterog_info;

/* A device of the plan, and what runs it; the texts live as long as the runner. */
typedef struct heterog_device {
  const char* name;    /* "local/gpu0", as in the cluster file */
  const char* model;   /* "T4", as in the plan */
  const char* runs_on; /* "cpu", "cuda:0" of its process */
} heterog_device;

/* Compiles the plan and makes the workers. With one_rank, waits until all ranks have come. */
int32_t heterog_open(const heterog_options* options, heterog_runner** runner);
/* Always frees the runner. `finished`: first waits for the other ranks; else they are told that
   this one ends the job. */
int32_t heterog_close(heterog_runner* runner, int32_t finished);
int32_t heterog_get_info(const heterog_runner* runner, heterog_info* info);
int32_t heterog_get_device(const heterog_runner* runner, int32_t rank, heterog_device* device);

/* Whether a tensor, by its place in the graph file, stays on any rank between steps. */
int32_t heterog_is_kept(const heterog_runner* runner, uint32_t tensor, int32_t* kept);
/* Copies a kept tensor in. Every kept one is set before the first step; every rank sets all. */
int32_t heterog_set(heterog_runner* runner, uint32_t tensor, const heterog_tensor* value);
/* Copies a kept tensor out. Every rank calls it, for the same tensors in the same order. */
int32_t heterog_get(heterog_runner* runner, uint32_t tensor, heterog_tensor* value);

/* One step, on inputs of the whole batch, the same on every rank; `number` counts from 1. `graph`:
   0, or 1 and up for those of `more_graphs`. Inputs on a GPU are taken once what the calling thread
   has launched on its current stream has run. `samples` are in the batch: the plan is cut anew for
   another number than its own. What a graph keeps and never replaces may be among the inputs, where
   graphs differ in it. `own_rows`, the same on all ranks: of inputs that have samples only those
   hold values that this process's ranks read; the others may be anything. `loss` is that of the
   whole batch, `seconds` what the slowest rank took. After an error that is not of the inputs, the
   runner can only be closed; but where `loss` has become NaN, the step is done in all ranks, and
   the loss was no finite number: tensors can be copied out and in, and steps can follow. */
int32_t heterog_step(heterog_runner* runner, int64_t number, int32_t graph, int64_t samples,
                     const uint32_t* tensors, const heterog_tensor* values, int32_t count,
                     int32_t own_rows, double* loss, double* seconds);
/* The same in two calls, of which the first does not wait for GPUs: one more step may be launched
   before the first is finished, which finish() does in the order of launching, so that GPUs have
   work while the loss comes back. What is set or got in between is of the step launched last. Every
   rank makes these calls in the same order. That a loss was no finite number is known once the next
   step is under way; the runner can go on after both. */
int32_t heterog_launch(heterog_runner* runner, int64_t number, int32_t graph, int64_t samples,
                       const uint32_t* tensors, const heterog_tensor* values, int32_t count,
                       int32_t own_rows);
int32_t heterog_finish(heterog_runner* runner, double* loss, double* seconds);
/* Copies out what the step finished last made of an output of its graph beside the loss, of the
   whole batch. Every rank calls it, for the same tensors in the same order. */
int32_t heterog_get_output(heterog_runner* runner, uint32_t tensor, heterog_tensor* value);
/* Which samples of a batch of so many this process's ranks read, of any input: `count` ranges in
   order, of which `capacity` are written. None: the process needs no data. */
typedef struct heterog_range {
  int64_t begin; /* of the first sample */
  int64_t end;   /* behind the last one */
} heterog_range;
int32_t heterog_get_rows(heterog_runner* runner, int32_t graph, int64_t samples,
                         heterog_range* ranges, int32_t capacity, int32_t* count);

/* Waits for all ranks; `worst` is the largest `own` of them. */
int32_t heterog_meet(heterog_runner* runner, int32_t own, int32_t* worst);

/* Puts the sums over all processes in the place of the numbers. Every rank calls it. */
int32_t heterog_add_up(heterog_runner* runner, double* numbers, int32_t count);

/* XXH3 of `size` bytes, 64 bits, seed 0: the checksum of checkpoints (docs/formats.md). */
uint64_t heterog_xxh3(const void* bytes, uint64_t size);

#ifdef __cplusplus
}
#endif

#endif
