#include "engine/scheduler.h"

#include <algorithm>
#include <tuple>

#include "base/result.h"

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

std::int64_t whole_pages(std::int64_t tokens) { return (tokens + kPageSize - 1) / kPageSize; }

// Before others in every choice.
bool goes_before(const Sequence& a, const Sequence& b) {
  return std::tuple(a.ask().priority, a.flow->served, a.flow->running, a.id()) <
         std::tuple(b.ask().priority, b.flow->served, b.flow->running, b.id());
}

// Gives way before others.
bool yields_before(const Sequence& a, const Sequence& b) {
  return std::tuple(a.ask().priority, a.flow->served, a.admitted) >
         std::tuple(b.ask().priority, b.flow->served, b.admitted);
}

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

Sequence* Scheduler::next_waiting(const Skip& skip) const {
  Sequence* best = nullptr;
  for (const Owned& sequence : waiting_) {
    if (sequence->cancelled || (best != nullptr && !goes_before(*sequence, *best))) continue;
    const auto no_place = skip.flows.find(sequence->flow);
    if (no_place != skip.flows.end() && sequence->ask().priority >= no_place->second) continue;
    if (sequence->ask().adapter != nullptr && skip.adapters.contains(sequence->ask().adapter.get())) continue;
    if (!skip.sequences.contains(sequence.get())) best = sequence.get();
  }
  return best;
}

Sequence* Scheduler::yields_place(const Sequence& sequence) const {
  if (keep_all_) return nullptr;
  const int share = std::max(1, options_.max_sequences / std::max(1, fair_.active()));
  Sequence* victim = nullptr;
  for (const Owned& other : running_) {
    const bool more_urgent = sequence.ask().priority < other->ask().priority;
    // A flow below half its share takes a place from one above its own. At every small difference, places would change
    // hands all the time, each change computing something again.
    const bool fairer = sequence.ask().priority == other->ask().priority && 2 * sequence.flow->running < share &&
                        other->flow->running > share;
    if ((more_urgent || fairer) && (victim == nullptr || yields_before(*other, *victim))) victim = other.get();
  }
  return victim;
}

bool Scheduler::try_admit(Sequence& sequence) {
  const Sequence::Ask& ask = sequence.ask();
  const Result<bool> usable = adapters_.acquire(runner_, ask.adapter);
  if (!usable.ok()) broken_.push_back({&sequence, usable.status()});
  if (!usable.ok() || !*usable) return false;

  const std::int64_t length = static_cast<std::int64_t>(sequence.ids().size());
  PrefixCache::Match match;
  const bool caching = options_.prefix_caching && !keep_all_ && !ask.prompt_logprobs;
  if (caching) {
    const PrefixCache::Key key{ask.adapter == nullptr ? 0 : ask.adapter->info.version, ask.cache_salt,
                               runner_.model().generation()};
    // One token at least is computed: its logits are wanted.
    match = cache_.find(key, sequence.ids(), length - 1);
  }
  // Room for all that is known and a token more; an answer grows page by page.
  const std::int64_t want = keep_all_ ? ask.capacity : std::min(length + 1, ask.capacity);
  sequence.state.pages = match.pages;
  const std::int64_t missing = whole_pages(want) - static_cast<std::int64_t>(match.pages.size());
  // Nothing is given up for one that does not fit all the same.
  const bool fits =
      missing <= runner_.pool().free_pages() || missing <= runner_.pool().free_pages() + cache_.idle_pages();
  if (fits) cache_.make_room(missing);
  if (!fits || !runner_.pool().reserve(sequence.state, want)) {
    runner_.pool().release(sequence.state);
    cache_.leave(match.at);
    adapters_.release(ask.adapter);
    return false;
  }
  sequence.state.length = match.tokens;
  sequence.computed = std::max(sequence.computed, match.tokens);
  if (match.snapshot >= 0) runner_.pool().copy_slot(runner_.exec(), match.snapshot, sequence.state.slot);
  sequence.node = match.at;
  sequence.cached_pages = static_cast<std::int64_t>(match.pages.size());
  if (caching && sequence.admitted == 0) {
    queries_ += length;
    hits_ += match.tokens;
    sequence.from_cache = match.tokens;
  }
  sequence.snapshot_at.clear();
  if (caching && recurrent_) {
    // Where this prompt parted from an earlier one, others will; and its own end, for when it is asked again or goes
    // on.
    for (const std::int64_t at : {match.common, (sequence.prompt_tokens() - 1) / kPageSize * kPageSize}) {
      if (at > match.tokens && (sequence.snapshot_at.empty() || at > sequence.snapshot_at.back())) {
        sequence.snapshot_at.push_back(at);
      }
    }
  }
  return true;
}

// Another one of its flow is computing what this one begins with: choices of one request, or the same prompt asked
// again. It starts from the cache once the other is through, instead of computing the same beside it.
bool Scheduler::may_start_from_twin(const Sequence& sequence) const {
  const Sequence::Ask& ask = sequence.ask();
  if (!options_.prefix_caching || keep_all_ || ask.prompt_logprobs) return false;
  const std::int64_t shared = (static_cast<std::int64_t>(sequence.ids().size()) - 1) / kPageSize * kPageSize;
  const auto beginning = sequence.ids().first(static_cast<std::size_t>(shared));
  return std::any_of(running_.begin(), running_.end(), [&](const Owned& other) {
    return other->flow == sequence.flow && other->node != nullptr && !other->cancelled &&
           other->cached_pages * kPageSize < shared && other->prompt_tokens() >= shared &&
           other->ask().priority <= ask.priority && other->ask().adapter == ask.adapter &&
           other->ask().cache_salt == ask.cache_salt &&
           std::equal(beginning.begin(), beginning.end(), other->ids().begin());
  });
}

// What the loader has read comes into memory; where it cannot be used, all that wait for it end.
const LoadedAdapter* Scheduler::take_read_adapter() {
  std::optional<AdapterLoader::Done> done = loader_.take();
  if (!done) return nullptr;
  const Status status = adapters_.bring_into_memory(*done->adapter, std::move(done->read));
  if (status.ok()) return nullptr;
  for (const Owned& sequence : waiting_) {
    if (sequence->ask().adapter == done->adapter) broken_.push_back({sequence.get(), status});
  }
  return done->adapter.get();
}

void Scheduler::admit() {
  Skip skip;
  if (const LoadedAdapter* broken = take_read_adapter(); broken != nullptr) skip.adapters.insert(broken);
  const Sequence* starved = nullptr;  // the neediest that waits for an adapter slot
  while (Sequence* next = next_waiting(skip)) {
    // Slots would never come free if adapters that were served more went on taking new requests.
    if (starved != nullptr && next->ask().adapter != nullptr && next->flow->running > 0 &&
        next->flow->served > starved->flow->served) {
      skip.sequences.insert(next);
      continue;
    }
    // Asked before anybody gives way for it. One on disk is read first, in turn; the neediest also while it waits for
    // a slot, if that takes no memory from others.
    const bool room = adapters_.has_room(next->ask().adapter);
    if (adapters_.on_disk(next->ask().adapter) && !loader_.busy() &&
        (room || (starved == nullptr && adapters_.has_memory()))) {
      loader_.start(next->ask().adapter);
    }
    if (!room || adapters_.on_disk(next->ask().adapter)) {
      skip.adapters.insert(next->ask().adapter.get());
      if (!room && starved == nullptr) starved = next;
      continue;
    }
    if (may_start_from_twin(*next)) {
      skip.sequences.insert(next);
      continue;
    }
    if (static_cast<int>(running_.size()) >= options_.max_sequences) {
      Sequence* victim = yields_place(*next);
      if (victim == nullptr) {
        skip.flows[next->flow] = next->ask().priority;  // nor is there a place for its others
        continue;
      }
      preempt(victim);
    }
    if (!try_admit(*next)) {
      // What cannot be read for one cannot be read for the others either.
      if (!broken_.empty() && broken_.back().sequence == next) {
        const Status why = broken_.back().why;
        skip.adapters.insert(next->ask().adapter.get());
        for (const Owned& other : waiting_) {
          if (other.get() != next && other->ask().adapter == next->ask().adapter) broken_.push_back({other.get(), why});
        }
        continue;
      }
      break;  // no memory: those behind it would only take what it waits for
    }
    next->mark_admitted(++admissions_);
    --next->flow->waiting;
    ++next->flow->running;
    const auto it = std::find_if(waiting_.begin(), waiting_.end(), [&](const Owned& s) { return s.get() == next; });
    running_.push_back(std::move(*it));
    waiting_.erase(it);
  }
  if (starved != nullptr) free_slot_for(*starved);
}

// The adapter that was served most leaves its slot, with all its sequences, once it is this many rows ahead.
void Scheduler::free_slot_for(const Sequence& starved) {
  constexpr double kAhead = 1024;
  if (keep_all_ || starved.flow->running > 0) return;
  const Sequence* most = nullptr;
  for (const Owned& s : running_) {
    if (s->ask().adapter == nullptr || s->ask().adapter->info.pinned || s->ask().priority < starved.ask().priority) {
      continue;
    }
    if (most == nullptr || s->flow->served > most->flow->served) most = s.get();
  }
  if (most == nullptr || most->flow->served < starved.flow->served + kAhead) return;
  // Read first, even beyond the limit of what is in memory: it is in its slot soon after. Who gives way earlier would
  // come back before it is there.
  if (adapters_.on_disk(starved.ask().adapter)) {
    if (!loader_.busy()) loader_.start(starved.ask().adapter);
    return;
  }
  const AdapterRef adapter = most->ask().adapter;
  for (std::size_t i = running_.size(); i-- > 0;) {
    if (running_[i]->ask().adapter == adapter) preempt(running_[i].get());
  }
}

void Scheduler::release(Sequence& sequence) {
  cache_.leave(sequence.node);
  sequence.node = nullptr;
  sequence.cached_pages = 0;
  runner_.pool().release(sequence.state);
  adapters_.release(sequence.ask().adapter);
}

void Scheduler::preempt(Sequence* sequence) {
  ++preemptions_;
  release(*sequence);
  --sequence->flow->running;
  ++sequence->flow->waiting;
  const auto it = std::find_if(running_.begin(), running_.end(), [&](const Owned& s) { return s.get() == sequence; });
  waiting_.push_front(std::move(*it));
  running_.erase(it);
}

bool Scheduler::grow(Sequence& sequence, std::int64_t length, const std::vector<Part>& planned) {
  const auto is_planned = [&](const Sequence* s) {
    return std::any_of(planned.begin(), planned.end(), [&](const Part& part) { return part.sequence == s; });
  };
  while (true) {
    cache_.make_room(whole_pages(length) - static_cast<std::int64_t>(sequence.state.pages.size()));
    if (runner_.pool().reserve(sequence.state, length)) return true;
    Sequence* victim = nullptr;
    for (const Owned& other : running_) {
      if (!is_planned(other.get()) && (victim == nullptr || yields_before(*other, *victim))) victim = other.get();
    }
    CADRE_CHECK(victim != nullptr && (victim != &sequence || running_.size() > 1), "one sequence does not fit");
    const bool itself = victim == &sequence;
    preempt(victim);
    if (itself) return false;
  }
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
