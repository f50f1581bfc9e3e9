#include "engine/scheduler.h"

#include <algorithm>

#include "base/result.h"
#include "engine/order.h"

namespace cadre {
namespace {

// Rows a flow gets in turn when several want their prompts computed. A step grows with the rows in it, so the flow that
// waits for little should not have to wait for another's long prompt; smaller pieces would waste batching.
constexpr std::int64_t kTurnRows = 32;

// The same flow's prompts go on at least at this pace beside its answers.
constexpr std::int64_t kLeastPromptRows = 8;

// Steps in a row that answers, and then prompts, of flows above their share may be left out of.
constexpr int kPauses = 4;

// Steps after which a flow that has been alone may fill whole steps with its prompts.
constexpr std::int64_t kRemembered = 256;

bool has_recurrent(const std::vector<StateSpec>& specs) {
  return std::any_of(specs.begin(), specs.end(), [](const auto& s) { return s.kind == StateSpec::Kind::kRecurrent; });
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options, Runner& runner, AdapterSet& adapters, AdapterLoader& loader)
    : options_(options),
      runner_(runner),
      adapters_(adapters),
      loader_(loader),
      keep_all_(runner.model().rope_by_length()),
      recurrent_(has_recurrent(runner.model().state_specs())),
      cache_(runner.pool(), recurrent_) {}

Scheduler::~Scheduler() {
  for (const Owned& sequence : running_) release(*sequence);
}

void Scheduler::add(Owned sequence) {
  const Sequence::Ask& ask = sequence->ask();
  sequence->flow = fair_.join(ask.tenant, ask.adapter == nullptr ? "" : ask.adapter->info.name);
  waiting_.push_back(std::move(sequence));
}

bool Scheduler::cancel(std::uint64_t id) {
  const auto mark = [&](const auto& sequences) {
    const auto it = std::find_if(sequences.begin(), sequences.end(), [&](const Owned& s) { return s->id() == id; });
    if (it == sequences.end()) return false;
    (*it)->cancelled = true;
    return true;
  };
  return mark(running_) || mark(waiting_);
}

std::int64_t Scheduler::chunk(const Sequence& sequence, std::int64_t rows) const {
  std::int64_t n = std::min(rows, static_cast<std::int64_t>(sequence.unseen().size()));
  // A snapshot is of the state after exactly those tokens.
  for (const std::int64_t at : sequence.snapshot_at) {
    if (at > sequence.state.length) n = std::min(n, at - sequence.state.length);
  }
  return n;
}

bool Scheduler::above_share(const Flow& flow) const {
  // One that is alone at the moment has all places; while others come and go, it keeps its steps short for them.
  const bool alone = fair_.active() == 1 && steps_ < contended_until_;
  return alone || (fair_.active() > 1 && flow.running > options_.max_sequences / fair_.active());
}

// Prompts share what room there is flow by flow, the neediest first. A step takes as long as it has rows, so one that
// brings the neediest flow's first token has no prompts of flows above their share in it; and while several flows come
// and go, those above their share compute in small steps, because a newcomer waits for the step that is running.
// `limited` is what such flows may have. It is theirs, too, after so many steps without any of their prompts: others
// that never run out of prompts must not keep them waiting for ever.
void Scheduler::plan_prompts(std::vector<Part>* parts, std::int64_t room, std::int64_t limited) {
  std::vector<Sequence*> prompts;
  for (const Owned& sequence : running_) {
    if (!sequence->cancelled && sequence->unseen().size() > 1) prompts.push_back(sequence.get());
  }
  std::sort(prompts.begin(), prompts.end(), [&](const Sequence* a, const Sequence* b) {
    const bool first = above_share(*a->flow), second = above_share(*b->flow);
    if (a->ask().priority == b->ask().priority && first != second) return second;
    return goes_before(*a, *b);
  });
  std::vector<const Flow*> flows;
  for (const Sequence* s : prompts) {
    if (std::find(flows.begin(), flows.end(), s->flow) == flows.end()) flows.push_back(s->flow);
  }
  std::vector<std::int64_t> rows(prompts.size());
  const auto give = [&](const Flow* flow, std::int64_t turn) {
    for (std::size_t i = 0; i < prompts.size() && turn > 0; ++i) {
      if (prompts[i]->flow != flow) continue;
      const std::int64_t more = chunk(*prompts[i], rows[i] + std::min(turn, room)) - rows[i];
      rows[i] += more;
      room -= more;
      turn -= more;
    }
    return turn;  // what it has no use for
  };
  if (!flows.empty() && above_share(*flows.front())) {
    room = std::min(room, limited);
    passed_over_ = 0;
  } else {
    const auto above = std::find_if(flows.begin(), flows.end(), [&](const Flow* flow) { return above_share(*flow); });
    const bool due = above != flows.end() && passed_over_ >= kPauses;
    if (due) give(*above, std::min(room, limited));
    passed_over_ = above == flows.end() || due ? 0 : passed_over_ + 1;
    std::erase_if(flows, [&](const Flow* flow) { return above_share(*flow); });
  }
  const std::int64_t turn = flows.size() > 1 ? kTurnRows : room;
  for (bool first_is_done = flows.empty(); !first_is_done && room > 0;) {
    for (const Flow* flow : flows) {
      const std::int64_t left = give(flow, turn);
      if (flow == flows.front() && left > 0) first_is_done = true;
    }
  }
  // Where every row of a batch may have logits, the rows themselves are the limit.
  std::int64_t prompt_logits = options_.max_logit_rows >= options_.max_tokens
                                   ? options_.max_tokens
                                   : options_.max_logit_rows - static_cast<std::int64_t>(running_.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Sequence& sequence = *prompts[i];
    const bool all = sequence.wants_prompt_logits();
    if (all) rows[i] = std::min(rows[i], prompt_logits);
    if (rows[i] <= 0) continue;
    if (all) prompt_logits -= rows[i];
    // An earlier one may have made this one give way.
    if (std::none_of(running_.begin(), running_.end(), [&](const Owned& s) { return s.get() == &sequence; })) continue;
    if (!grow(sequence, sequence.state.length + rows[i], *parts)) continue;
    parts->push_back({.sequence = &sequence,
                      .rows = rows[i],
                      .draws = rows[i] == static_cast<std::int64_t>(sequence.unseen().size()),
                      .all_logits = all});
  }
}

std::vector<Scheduler::Part> Scheduler::plan() {
  admit();
  std::vector<Part> parts;
  std::int64_t room = options_.max_tokens;
  if (fair_.active() > 1) contended_until_ = steps_ + kRemembered;
  // A step that brings a first token to a flow within its share leaves out the answers of those above theirs, which go
  // on with the next.
  const bool first_tokens = std::any_of(running_.begin(), running_.end(), [&](const Owned& s) {
    return !s->cancelled && !s->started() && !above_share(*s->flow);
  });
  const bool pause = first_tokens && paused_ < kPauses;
  bool paused = false;
  std::int64_t limited = kTurnRows;  // rows of flows above their share
  // Decode steps first, one row each, so that a long prompt never stalls an answer.
  std::vector<Sequence*> decoding;
  for (const Owned& sequence : running_) {
    if (sequence->cancelled || sequence->unseen().size() != 1) continue;
    if (pause && sequence->started() && above_share(*sequence->flow)) {
      paused = true;
      continue;
    }
    decoding.push_back(sequence.get());
  }
  paused_ = paused ? paused_ + 1 : 0;
  // Those that waited longest first, where not all can go on.
  std::sort(decoding.begin(), decoding.end(), [](const Sequence* a, const Sequence* b) {
    return a->last_step != b->last_step ? a->last_step < b->last_step : yields_before(*b, *a);
  });
  for (Sequence* sequence : decoding) {
    if (std::none_of(running_.begin(), running_.end(), [&](const Owned& s) { return s.get() == sequence; })) continue;
    const bool above = above_share(*sequence->flow);
    if (room == 0 || (above && limited == 0) || !grow(*sequence, sequence->state.length + 1, parts)) continue;
    parts.push_back({.sequence = sequence, .rows = 1, .draws = true});
    --room;
    if (above) --limited;
  }
  plan_prompts(&parts, room, std::max(limited, kLeastPromptRows));
  return parts;
}

void Scheduler::ran(const std::vector<Part>& parts) {
  ++steps_;
  for (const Part& part : parts) {
    Sequence& s = *part.sequence;
    s.last_step = steps_;
    // What is computed again after giving way is nobody's gain; counted, a turn could be all repetition.
    const std::int64_t before = s.computed;
    s.computed = std::max(s.computed, s.state.length);
    s.flow->served += static_cast<double>(s.computed - before);
    rows_ += part.rows;
    // Several rows of one that has begun to answer: computed again after it gave way.
    if (!s.started() || part.rows > 1) prompt_rows_ += part.rows;
    if (part.draws) ++generated_;
    if (s.node == nullptr) continue;
    while ((s.cached_pages + 1) * kPageSize <= s.state.length) {
      const std::size_t at = static_cast<std::size_t>(s.cached_pages * kPageSize);
      s.node = cache_.extend(s.node, s.ids().subspan(at, kPageSize),
                             &s.state.pages[static_cast<std::size_t>(s.cached_pages)]);
      ++s.cached_pages;
    }
    if (std::find(s.snapshot_at.begin(), s.snapshot_at.end(), s.state.length) != s.snapshot_at.end()) {
      cache_.keep_snapshot(runner_.exec(), s.node, s.state.slot);
    }
  }
}

std::vector<Scheduler::Failure> Scheduler::ended() const {
  std::vector<Failure> out;
  const auto now = std::chrono::steady_clock::now();
  const auto look = [&](const auto& sequences) {
    for (const Owned& s : sequences) {
      if (s->cancelled) {
        out.push_back({s.get(), {}});
      } else if (s->late(now)) {
        out.push_back({s.get(), error(Code::kCancelled, "the request's time, ", s->ask().timeout_s, " s, is over")});
      }
    }
  };
  look(running_);
  look(waiting_);
  return out;
}

void Scheduler::finish(Sequence* sequence) {
  const auto is_it = [&](const Owned& s) { return s.get() == sequence; };
  Flow& flow = *sequence->flow;
  if (const auto it = std::find_if(running_.begin(), running_.end(), is_it); it != running_.end()) {
    --flow.running;
    release(*sequence);
    running_.erase(it);
  } else {
    --flow.waiting;
    std::erase_if(waiting_, is_it);
  }
  fair_.tidy();
}

void Scheduler::collect_adapters() {
  for (const std::uint64_t version : adapters_.collect(runner_)) cache_.forget(version);
}

void Scheduler::add_to(EngineStats* stats) const {
  stats->running = static_cast<int>(running_.size());
  stats->waiting = static_cast<int>(waiting_.size());
  stats->pages = runner_.pool().pages();
  stats->pages_cached = cache_.idle_pages();
  stats->pages_in_use = stats->pages - runner_.pool().free_pages() - stats->pages_cached;
  stats->prefix_queries = queries_;
  stats->prefix_hits = hits_;
  stats->preemptions = preemptions_;
  stats->steps = steps_;
  stats->rows = rows_;
  stats->prompt_tokens = prompt_rows_;
  stats->generated_tokens = generated_;
  std::map<std::string, AdapterLoad> loads;
  const auto count = [&](const auto& sequences, int AdapterLoad::* field) {
    for (const Owned& s : sequences) {
      const std::string name = s->ask().adapter == nullptr ? "" : s->ask().adapter->info.name;
      AdapterLoad& load = loads[name];
      load.name = name;
      ++(load.*field);
    }
  };
  count(running_, &AdapterLoad::running);
  count(waiting_, &AdapterLoad::waiting);
  for (auto& [name, load] : loads) stats->adapters.push_back(std::move(load));
}

}  // namespace cadre
