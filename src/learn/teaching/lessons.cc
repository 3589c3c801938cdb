// Deals cases out by how long their searches take; lessons travel as numbers.
#include "learn/teaching/lessons.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "base/check.h"
#include "learn/teaching/teacher.h"
#include "search/starts/starts.h"

namespace heterog::learn {
namespace {

// As the config says, but no more than one shot.
std::int64_t lesson_evaluations(const Case& c, const TrainConfig& config) {
  return std::min(config.teacher_evaluations, search::one_shot_evaluations(*c.problem));
}

// About in proportion to the time of its search.
double lesson_work(const Case& c, const TrainConfig& config) {
  return static_cast<double>(lesson_evaluations(c, config)) *
         static_cast<double>(c.problem->graph->op_count()) *
         static_cast<double>(c.problem->cluster->device_count());
}

bool lacks_a_lesson(const Learner& learner, std::span<const std::size_t> cases) {
  return std::ranges::any_of(cases, [&](std::size_t i) { return !learner.states[i].taught; });
}

// Those that steps up to the next checkpoint are about, each once. As soon as it has all cases that
// nobody has taught, it looks no further: checkpoints may be far apart.
std::vector<std::size_t> cases_to_teach(const Learner& learner, std::size_t cases) {
  const TrainConfig& config = learner.config;
  const auto left = static_cast<std::size_t>(std::ranges::count(
      learner.states, false, [](const CaseState& state) { return state.taught; }));
  const std::int64_t every = config.checkpoint_every;
  const std::int64_t end = std::min(config.steps, (learner.step / every + 1) * every);
  std::vector<std::size_t> untaught;
  for (std::int64_t step = learner.step; step < end && untaught.size() < left; ++step) {
    for (const std::size_t index : cases_of_step(config, cases, step)) {
      const bool known = std::ranges::find(untaught, index) != untaught.end();
      if (!learner.states[index].taught && !known) untaught.push_back(index);
    }
  }
  return untaught;
}

// Which of them each rank searches for: the longest first, each to the rank with the least so far.
std::vector<std::vector<std::size_t>> deal(std::vector<std::size_t> asked,
                                           const TeachingContext& context,
                                           const TrainConfig& config) {
  const auto work = [&](std::size_t index) { return lesson_work(context.cases[index], config); };
  std::ranges::stable_sort(asked, std::greater<>(), work);
  std::vector<double> loads(static_cast<std::size_t>(context.team.size()));
  std::vector<std::vector<std::size_t>> dealt(loads.size());
  for (const std::size_t index : asked) {
    const auto least = static_cast<std::size_t>(std::ranges::min_element(loads) - loads.begin());
    loads[least] += work(index);
    dealt[least].push_back(index);
  }
  return dealt;
}

// Whether somebody has looked for it, and what was found.
struct Answer {
  bool given = false;
  std::optional<Lesson> lesson;
};

std::vector<Answer> search_lessons(const TrainConfig& config, const TeachingContext& context,
                                   std::span<const std::size_t> cases) {
  const auto given_up = [&] {
    return (context.stopped && context.stopped()) || context.team.over();
  };
  std::vector<Answer> answers(cases.size());
  std::mutex mutex;
  std::int64_t done = 0;
  context.threads.run(cases.size(), [&](int, std::size_t i) {
    if (given_up()) return;
    const Case& c = context.cases[cases[i]];
    try {
      answers[i].lesson =
          teach(c, lesson_evaluations(c, config),
                random_stream(config, RandomStream::kTeacher).split(cases[i]), given_up);
    } catch (const Error&) {
      if (given_up()) return;  // the search has ended because of that
      throw;
    }
    answers[i].given = true;
    const std::lock_guard lock(mutex);
    ++done;
    if (context.progress) context.progress(done, static_cast<std::int64_t>(cases.size()));
  });
  return answers;
}

void put_answer(Numbers& numbers, const Answer& answer) {
  numbers.push_back(answer.given ? 1 : 0);
  numbers.push_back(answer.lesson ? static_cast<std::int64_t>(answer.lesson->actions.size()) : 0);
  if (!answer.lesson) return;
  numbers.push_back(std::bit_cast<std::int64_t>(answer.lesson->step_seconds));
  for (const space::ActionId action : answer.lesson->actions) numbers.push_back(action.value());
}

// From `at` on, which it moves on.
Answer take_answer(const Numbers& numbers, std::size_t& at) {
  EXPECT(at + 2 <= numbers.size());
  Answer answer{.given = numbers[at++] != 0};
  const auto groups = static_cast<std::size_t>(numbers[at++]);
  if (groups == 0) return answer;
  EXPECT(at + 1 + groups <= numbers.size());
  Lesson lesson{.step_seconds = std::bit_cast<double>(numbers[at++])};
  for (std::size_t n = 0; n < groups; ++n) {
    lesson.actions.emplace_back(static_cast<std::size_t>(numbers[at++]));
  }
  answer.lesson = std::move(lesson);
  return answer;
}

}  // namespace

bool teach_next(Learner& learner, const TeachingContext& context) {
  const TrainConfig& config = learner.config;
  const std::size_t cases = context.cases.size();
  if (config.teacher_evaluations == 0 ||
      !lacks_a_lesson(learner, cases_of_step(config, cases, learner.step))) {
    return true;
  }
  const auto dealt = deal(cases_to_teach(learner, cases), context, config);
  Numbers own;
  for (const Answer& answer :
       search_lessons(config, context, dealt[static_cast<std::size_t>(context.team.rank())])) {
    put_answer(own, answer);
  }
  const std::vector<Numbers> all = gather_numbers(context.team, own);
  bool complete = true;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::size_t at = 0;
    for (const std::size_t index : dealt[rank]) {
      Answer answer = take_answer(all[rank], at);
      complete = complete && answer.given;
      if (!answer.given) continue;
      learner.states[index].taught = true;
      learner.states[index].lesson = std::move(answer.lesson);
    }
  }
  return complete;
}

}  // namespace heterog::learn
