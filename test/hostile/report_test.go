package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

// TestRows: an attack counts as held off only when it was tried, measured and met no fault.
func TestRows(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(o *outcome)
		want string // beginning of the line
		ok   bool
	}{
		"held off": {func(o *outcome) {
			o.refuse("429")
			o.take("200")
			o.refuse("429")
			o.effect("2 jobs")
		}, "ok      held off: tried 3, refused 2 (429 x 2); others: 2 jobs", true},
		"not tried": {func(o *outcome) {
			o.effect("none")
		}, "FAILED  not tried: tried 0, refused 0; nothing was tried", false},
		"not measured": {func(o *outcome) {
			o.refuse("403")
		}, "FAILED  not measured: tried 1, refused 1 (403 x 1); no effect on others was measured", false},
		"taken": {func(o *outcome) {
			o.want("x", answer{code: 200, body: []byte("{}")}, nil, 403)
			o.effect("none")
		}, "FAILED  taken: tried 1, refused 0; x is answered 200 {}", false},
		"skipped": {func(o *outcome) {
			o.check(fmt.Errorf("%w: no root", rig.ErrSkip))
		}, "SKIPPED skipped: cannot run here: no root", false},
		"silent": {func(o *outcome) {
			o.note(answer{}, errors.New("closed"))
		}, "FAILED  silent: tried 0, refused 0; no answer: closed", false},
	} {
		var o outcome
		c.do(&o)
		r := &report{out: io.Discard}
		one := o.row(name)
		if r.add(one); r.well() != c.ok || !strings.HasPrefix(one.line(), c.want) {
			t.Errorf("well %t, %s", r.well(), one.line())
		}
	}
	if (&report{}).well() {
		t.Error("a run without attacks is well")
	}
}

// TestLimited: a refusal over a limit is 429, states when to retry, and names the setting.
func TestLimited(t *testing.T) {
	again := map[string][]string{"Retry-After": {"5"}}
	for name, c := range map[string]struct {
		a  answer
		ok bool
	}{
		"taken":         {answer{code: 200}, true},
		"refused":       {answer{code: 429, header: again, body: []byte("a quarter of SVC_X")}, true},
		"other code":    {answer{code: 503, header: again, body: []byte("SVC_X")}, false},
		"no time":       {answer{code: 429, body: []byte("SVC_X")}, false},
		"no setting":    {answer{code: 429, header: again, body: []byte("too many")}, false},
		"other setting": {answer{code: 429, header: again, body: []byte("SVC_Y")}, false},
	} {
		var o outcome
		if o.limited(c.a, nil, "SVC_X", "SVC_Z"); (len(o.faults) == 0) != c.ok {
			t.Errorf("%s: %v", name, o.faults)
		}
	}
}

func TestQuantile(t *testing.T) {
	var list []time.Duration
	if quantile(list, 0.99) != 0 {
		t.Error("a quantile of nothing")
	}
	for i := range 200 {
		list = append(list, time.Duration(200-i))
	}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 101, 0.99: 199, 1: 200} {
		if got := quantile(list, share); got != want {
			t.Errorf("%g: %d, want %d", share, got, want)
		}
	}
}

// TestMixedIsChecked: each target of the mixed load can fail the row of each attacked phase.
func TestMixedIsChecked(t *testing.T) {
	attacked := func(larger float64) phase { return phase{Started: 1, P99: slowerAtMost, Memory: int64(larger * 100)} }
	for name, spoil := range map[string]func(m *mixed, p *phase){
		"": func(*mixed, *phase) {}, "nothing started": func(_ *mixed, p *phase) { p.Started = 0 },
		"slow":  func(_ *mixed, p *phase) { p.P99 += 0.1 },
		"large": func(_ *mixed, p *phase) { p.Memory += 10 }, "lost": func(_ *mixed, p *phase) { p.Lost = 1 },
		"failed": func(m *mixed, _ *phase) { m.Alone.Failed = 1 }, "left": func(m *mixed, _ *phase) { m.Left = 1 },
	} {
		for at := range 2 {
			m := &mixed{
				Alone: phase{Started: 1, P99: 1, Memory: 100}, Attacked: attacked(largerAtMost),
				Callers: attacked(largerWithCallers),
			}
			spoil(m, []*phase{&m.Attacked, &m.Callers}[at])
			if one := m.rows()[at]; (one.Fault == "") != (name == "") {
				t.Errorf("%s: %s", name, one.line())
			}
		}
	}
}
