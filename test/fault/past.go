package fault

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// pastPage is how many instances that are gone one call asks for.
const pastPage = 1000

// past asks for every instance that is gone and remembered, the newest first.
func (c *client) past(ctx context.Context) (all []api.HistoryInstance, err error) {
	for after := ""; ; {
		q := url.Values{"limit": {strconv.Itoa(pastPage)}}
		if after != "" {
			q.Set("after", after)
		}
		var page []api.HistoryInstance
		if err := c.Send(ctx, http.MethodGet, "/api/v1/vm/history?"+q.Encode(), nil, &page); err != nil {
			return nil, fmt.Errorf("read the history of the instances: %w", err)
		}
		if all = append(all, page...); len(page) < pastPage {
			return all, nil
		}
		after = page[len(page)-1].InstanceID
	}
}

// checkPast holds the history of instances that the controller keeps against the lives
// of a cloud that is empty: each that was acknowledged has one whole record, and only
// the oldest may be forgotten: an instance finished after its end was asked for, and perhaps
// long before that was acknowledged. begin is when the clock of the lives began.
func checkPast(lives map[string]*life, past []api.HistoryInstance, begin time.Time, f *findings) {
	records, oldest := map[string]int{}, never
	for _, p := range past {
		records[p.InstanceID]++
		oldest = min(oldest, p.Finished.Sub(begin))
		if why := wrongPast(p); why != "" {
			f.wrong("the record of instance %s, which is gone: %s", p.InstanceID, why)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(lives)) {
		l := lives[id]
		switch n := records[id]; {
		case n > 1:
			f.wrong("instance %s, which is gone, has %d records", id, n)
		case n == 0 && l.created != never && (len(past) < pastKept || l.agreed != never && l.asked > oldest):
			f.lost("instance %s is gone and has no record", id)
		}
	}
}

// pastKept is how many records a controller keeps at least before it forgets the oldest.
const pastKept = 19_000

// wrongPast returns what is wrong with a record: from Scheduling, in which every life
// begins, it leads to the end along the edges; "" when nothing is.
func wrongPast(p api.HistoryInstance) string {
	was := api.Transition{State: string(farm.Scheduling)}
	for _, t := range p.Transitions {
		if !reaches[farm.InstanceState(was.State)][farm.InstanceState(t.State)] || t.Time.Before(was.Time) {
			return fmt.Sprintf("%s at %s follows %s at %s", t.State, t.Time, was.State, was.Time)
		}
		was = t
	}
	if was.State != string(farm.Terminated) || p.Finished.IsZero() {
		return fmt.Sprintf("it tells no whole life: %v, finished %s", p.Transitions, p.Finished)
	}
	return ""
}
