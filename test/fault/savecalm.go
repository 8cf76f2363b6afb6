package fault

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// trial is what a target contributes to its evaluation.
type trial struct {
	ends  map[string]int // step -> terminations that met it
	node  string         // that starts the saved versions; "": any
	found findings       // so far
}

// checkSaved checks the idle cloud, the empty one, the history, and starts every version that was
// saved.
func (s *scene) checkSaved(ctx context.Context, t trial) (result, error) {
	r := s.result()
	var last world
	calm, err := s.settle(ctx, func(w world, f *findings) {
		last = w
		checkCalm(s.history.book, w, s.rules, f)
		checkSaves(s.history.all(), w, f)
	})
	if err != nil {
		return r, err
	}
	s.say("calm: lost %d, orphans %d, stuck %d, wrong %d; terminating everything", calm.Lost, calm.Orphans, calm.Stuck,
		calm.Wrong)
	if err := s.terminateAll(ctx); err != nil {
		return r, err
	}
	end, err := s.settle(ctx, checkEnd)
	if err != nil {
		return r, err
	}
	sum := s.sum(last, t.ends)
	s.say("empty: orphans %d, stuck %d; starting the saved versions", end.Orphans, end.Stuck)
	var proofs, calls findings
	sum.Proved = s.prove(ctx, last, t.node, &proofs)
	after, err := s.settle(ctx, checkEnd)
	if err != nil {
		return r, err
	}
	checkCalls(s.history.all(), last.Requests, s.rules, &calls)
	checkRequests(s.history.all(), &calls)
	r.count(t.found, calls, calm, end, proofs, after)
	sum.Late, r.Saves = calm.Late, &sum
	r.Acknowledged, r.Errors = s.history.acknowledged(), s.history.errored()
	return r, sum.enough(s.planned)
}

// saveSum is what came of the saves of a target.
type saveSum struct {
	Done     int            `json:"done"`
	Failed   int            `json:"failed"` // with the instance at work afterwards
	Ended    int            `json:"ended"`  // because the instance was terminated
	Late     int            `json:"late"`   // of those, with a version in the registry all the same
	Proved   int            `json:"proved"` // versions that were started
	Restarts int            `json:"restarts"`
	Uploads  int            `json:"uploads"` // pushes that the registry still waits for, a day at most
	Reasons  map[string]int `json:"reasons"` // of Failed
	Ends     map[string]int `json:"terminations"`
	Hits     map[string]int `json:"hits"` // kills by program
}

// sum counts the saves of the calm world.
func (s *scene) sum(w world, ends map[string]int) saveSum {
	sum := saveSum{Reasons: map[string]int{}, Ends: ends, Hits: s.hits, Uploads: len(w.Uploads)}
	calls := s.history.all()
	cut := cutShort(calls, w.Requests)
	for _, r := range savedIn(calls, w.Requests, new(findings)) {
		switch {
		case r.Status == saveDone:
			sum.Done++
		case cut[r.ID]:
			sum.Ended++
		default:
			sum.Failed++
			sum.Reasons[plain(r.message())]++
		}
	}
	for _, c := range calls {
		if c.Op == opRestart && c.Acked {
			sum.Restarts++
		}
	}
	return sum
}

// enough is an error when too little was saved for a result.
func (s saveSum) enough(kills int) error {
	if s.Done < kills/2 || s.Restarts == 0 {
		return fmt.Errorf("only %d saves were done and %d restarts accepted in %d kills", s.Done, s.Restarts, kills)
	}
	return nil
}

func (s *saveSum) String() string {
	return fmt.Sprintf("saves: %d done, %d failed, %d ended by a termination (%d of them with a version); "+
		"%d versions started, %d restarts, %d pushes open\n\tkilled: %s\n\tterminated: %s\n\tfailures: %s",
		s.Done, s.Failed, s.Ended, s.Late, s.Proved, s.Restarts, s.Uploads, listed(s.Hits), listed(s.Ends),
		listed(s.Reasons))
}

// ids are what differs between two messages with the same meaning.
var ids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// plain makes a message one line that others may share.
func plain(message string) string {
	return strings.ReplaceAll(ids.ReplaceAllString(message, "..."), "\n", "; ")
}

// listed writes counts in one line.
func listed(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d x %s", counts[name], name))
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}
