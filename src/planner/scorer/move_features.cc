// The table: name and getter of each feature. Times are parts of the incumbent's step.
#include "planner/scorer/move_features.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "space/cluster_summary.h"

namespace heterog::planner {

namespace {

using compiler::OrderPolicy;

// What the getters read: the incumbent and one move, prepared.
struct View {
  const Incumbent& from;
  const DrawnMove& drawn;
  const RoughStep& rough;                 // of the incumbent
  const RoughChange& about;               // of the move
  double step = 1;                        // seconds
  double most_busy = 0, mean_busy = 0;    // of the incumbent
  double most_busy_after = 0;             // by what the move adds
  double giver = 0, taker = 0;            // busy of the devices that change most, as it is
  double given = 0, taken = 0;            // by so much
  double downhill = 0;                    // computation that leaves devices busier than the mean
  double compute = 0;                     // change, summed over the devices
  double fullest = 0, fullest_after = 0;  // part of a device's memory
  double missing = 0, missing_after = 0;  // memory beyond devices', part of all
  double devices = 1, machines = 1;
};

// From a ten-thousandth to many times the step, either sign: steep near 0, flat far from it.
double squashed(double part) { return std::asinh(1000 * part) / 8; }
double logarithm(double count) { return std::log2(1 + count) / 10; }

struct Feature {
  std::string_view name;
  double (*get)(const View&);
};

template <MoveKind kKind>
double is_kind(const View& v) {
  return v.drawn.kind == kKind ? 1 : 0;
}
template <OrderPolicy kOrder>
double had_order(const View& v) {
  return v.from.candidate.order == kOrder ? 1 : 0;
}
template <OrderPolicy kOrder>
double gets_order(const View& v) {
  return v.drawn.move.order == kOrder && v.from.candidate.order != kOrder ? 1 : 0;
}
double bucket(const Bytes bytes) { return std::log2(1 + static_cast<double>(bytes >> 20)) / 8; }

constexpr Feature kFeatures[] = {
    {"kind: one group", is_kind<MoveKind::kOne>},
    {"kind: run", is_kind<MoveKind::kRun>},
    {"kind: alike", is_kind<MoveKind::kAlike>},
    {"kind: boundary", is_kind<MoveKind::kBoundary>},
    {"kind: heaviest", is_kind<MoveKind::kHeaviest>},
    {"kind: sync", is_kind<MoveKind::kSync>},
    {"kind: reweigh", is_kind<MoveKind::kReweigh>},
    {"kind: balance", is_kind<MoveKind::kBalance>},
    {"kind: replace", is_kind<MoveKind::kReplace>},
    {"kind: recompute", is_kind<MoveKind::kRecompute>},
    {"kind: schedule", is_kind<MoveKind::kSchedule>},
    {"helped lately", [](const View& v) { return std::log2(v.drawn.kind_weight) / 2; }},
    {"devices", [](const View& v) { return logarithm(v.devices); }},
    {"devices a machine", [](const View& v) { return logarithm(v.devices / v.machines); }},
    {"entries",
     [](const View& v) { return logarithm(static_cast<double>(v.from.candidate.shares.size())); }},
    {"seams", [](const View& v) { return logarithm(v.rough.seams); }},
    {"fits", [](const View& v) { return v.from.measured.evaluation.feasible ? 1.0 : 0.0; }},
    {"busiest", [](const View& v) { return v.most_busy / v.step; }},
    {"mean busy", [](const View& v) { return v.mean_busy / v.step; }},
    {"chain", [](const View& v) { return squashed(v.rough.chain / v.step); }},
    {"reduces", [](const View& v) { return squashed(v.rough.reduces / v.step); }},
    {"servers", [](const View& v) { return squashed(v.rough.servers / v.step); }},
    {"late sync", [](const View& v) { return squashed(v.rough.late_sync / v.step); }},
    {"moving", [](const View& v) { return squashed(v.rough.moving / v.step); }},
    {"lone", [](const View& v) { return v.rough.lone; }},
    {"fullest", [](const View& v) { return v.fullest; }},
    {"missing", [](const View& v) { return squashed(v.missing); }},
    {"groups", [](const View& v) { return logarithm(static_cast<double>(v.about.groups.size())); }},
    {"part of groups",
     [](const View& v) {
       return static_cast<double>(v.about.groups.size()) /
              static_cast<double>(v.from.candidate.share_of.size());
     }},
    {"part of time", [](const View& v) { return v.about.time; }},
    {"part of time, squashed", [](const View& v) { return squashed(v.about.time); }},
    {"part of parameters", [](const View& v) { return v.about.parameters; }},
    {"part of parameters, squashed", [](const View& v) { return squashed(v.about.parameters); }},
    {"part of activations", [](const View& v) { return v.about.activations; }},
    {"middle", [](const View& v) { return v.about.middle; }},
    {"devices before", [](const View& v) { return v.about.devices_before; }},
    {"devices after", [](const View& v) { return v.about.devices_after; }},
    {"moved samples", [](const View& v) { return v.about.moved_samples; }},
    {"moved samples, squashed", [](const View& v) { return squashed(v.about.moved_samples); }},
    {"like left", [](const View& v) { return v.about.like_left ? 1.0 : 0.0; }},
    {"like right", [](const View& v) { return v.about.like_right ? 1.0 : 0.0; }},
    {"to all-reduce", [](const View& v) { return squashed(v.about.to_reduce); }},
    {"to server", [](const View& v) { return squashed(v.about.to_server); }},
    {"change: busiest",
     [](const View& v) { return squashed((v.most_busy_after - v.most_busy) / v.step); }},
    {"busiest after", [](const View& v) { return v.most_busy_after / v.step; }},
    {"giver", [](const View& v) { return v.giver / std::max(1e-12, v.most_busy); }},
    {"taker", [](const View& v) { return v.taker / std::max(1e-12, v.most_busy); }},
    {"given", [](const View& v) { return squashed(v.given / v.step); }},
    {"taken", [](const View& v) { return squashed(v.taken / v.step); }},
    {"taker after", [](const View& v) { return (v.taker + v.taken) / v.step; }},
    {"downhill", [](const View& v) { return squashed(v.downhill / v.step); }},
    {"change: compute", [](const View& v) { return squashed(v.compute / v.step); }},
    {"change: chain", [](const View& v) { return squashed(v.about.change.chain / v.step); }},
    {"change: reduces", [](const View& v) { return squashed(v.about.change.reduces / v.step); }},
    {"change: servers", [](const View& v) { return squashed(v.about.change.servers / v.step); }},
    {"change: late sync",
     [](const View& v) { return squashed(v.about.change.late_sync / v.step); }},
    {"change: sync",
     [](const View& v) {
       return squashed((v.about.change.reduces + v.about.change.servers) / v.step);
     }},
    {"change: moving", [](const View& v) { return squashed(v.about.change.moving / v.step); }},
    {"change: chain and moving",
     [](const View& v) {
       return squashed((v.about.change.chain + v.about.change.moving) / v.step);
     }},
    {"change: all",
     [](const View& v) {
       const RoughStep& change = v.about.change;
       return squashed((change.chain + change.moving + change.reduces + change.servers) / v.step);
     }},
    {"change: seams", [](const View& v) { return std::asinh(v.about.change.seams) / 4; }},
    {"change: lone", [](const View& v) { return v.about.change.lone; }},
    {"fullest after", [](const View& v) { return v.fullest_after; }},
    {"change: missing", [](const View& v) { return squashed(v.missing_after - v.missing); }},
    {"begins to recompute",
     [](const View& v) { return v.drawn.move.recompute == true ? v.about.activations : 0; }},
    {"ends recomputing",
     [](const View& v) { return v.drawn.move.recompute == false ? v.about.activations : 0; }},
    {"had order: rank", had_order<OrderPolicy::kRank>},
    {"had order: fifo", had_order<OrderPolicy::kFifo>},
    {"had order: rank-queued", had_order<OrderPolicy::kRankQueued>},
    {"gets order: rank", gets_order<OrderPolicy::kRank>},
    {"gets order: fifo", gets_order<OrderPolicy::kFifo>},
    {"gets order: rank-queued", gets_order<OrderPolicy::kRankQueued>},
    {"bucket", [](const View& v) { return bucket(v.from.candidate.bucket_bytes); }},
    {"change: bucket",
     [](const View& v) {
       return bucket(v.drawn.move.bucket_bytes.value_or(v.from.candidate.bucket_bytes)) -
              bucket(v.from.candidate.bucket_bytes);
     }},
};

void add_memory(const MoveEstimates& estimates, View& v) {
  const cost::Problem& problem = estimates.problem();
  double all = 0;
  for (DeviceId device : problem.cluster->device_ids()) {
    const auto capacity = static_cast<double>(problem.cluster->device(device).memory_bytes);
    const auto peak = static_cast<double>(v.from.measured.peak_bytes[device]);
    const double after = peak + v.about.change.bytes[device];
    all += capacity;
    v.fullest = std::max(v.fullest, peak / capacity);
    v.fullest_after = std::max(v.fullest_after, after / capacity);
    v.missing += std::max(0.0, peak - capacity);
    v.missing_after += std::max(0.0, after - capacity);
  }
  v.missing /= all;
  v.missing_after /= all;
}

void add_busy(View& v) {
  const oracle::Measured& measured = v.from.measured;
  std::vector<double> busy(v.rough.compute.begin(), v.rough.compute.end());
  for (std::size_t i = 0; i < measured.busy.size(); ++i) {
    busy[i] = to_seconds(measured.busy[DeviceId(i)]);
  }
  for (double one : busy) {
    v.most_busy = std::max(v.most_busy, one);
    v.mean_busy += one / static_cast<double>(busy.size());
  }
  const std::vector<double>& change = v.about.change.compute.raw();
  for (std::size_t i = 0; i < busy.size(); ++i) {
    v.most_busy_after = std::max(v.most_busy_after, busy[i] + change[i]);
    v.compute += change[i];
    v.downhill -= change[i] * (busy[i] - v.mean_busy) / std::max(1e-12, v.most_busy);
    if (-change[i] > v.given) {
      v.given = -change[i];
      v.giver = busy[i];
    }
    if (change[i] > v.taken) {
      v.taken = change[i];
      v.taker = busy[i];
    }
  }
}

}  // namespace

std::size_t move_feature_count() { return std::size(kFeatures); }
std::string_view move_feature_name(std::size_t feature) { return kFeatures[feature].name; }

std::vector<float> move_features(MoveEstimates& estimates, const Incumbent& from,
                                 std::span<const DrawnMove> moves) {
  const cluster::Cluster& cluster = *estimates.problem().cluster;
  estimates.begin(from);
  std::vector<float> rows;
  rows.reserve(moves.size() * move_feature_count());
  for (const DrawnMove& drawn : moves) {
    const RoughChange about = estimates.change(drawn.move);
    View view{.from = from,
              .drawn = drawn,
              .rough = estimates.incumbent(),
              .about = about,
              .step = std::max(1e-9, to_seconds(from.measured.evaluation.step)),
              .devices = static_cast<double>(cluster.device_count()),
              .machines = static_cast<double>(cluster.machine_count())};
    add_busy(view);
    add_memory(estimates, view);
    for (const Feature& feature : kFeatures) {
      rows.push_back(static_cast<float>(feature.get(view)));
    }
  }
  return rows;
}

}  // namespace heterog::planner
