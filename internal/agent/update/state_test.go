package update

import (
	"reflect"
	"strings"
	"testing"
)

func TestBootDecides(t *testing.T) {
	base := program{"1.0.0-base", "/usr/bin/buildnode"}
	at := func(s state) state {
		s.Base, s.BasePath = base.Version, base.Path
		return s
	}
	for name, tt := range map[string]struct {
		was, next state
		runs      string
	}{
		"nothing was installed": {at(state{}), at(state{}), ""},
		"a good version":        {at(state{Good: "2"}), at(state{Good: "2"}), "2"},
		"one on trial": {
			at(state{Trial: &trial{"i", "3", 1}}), at(state{Trial: &trial{"i", "3", 2}}), "3",
		},
		"on trial after a good one": {
			at(state{Good: "2", Trial: &trial{"i", "3", 2}}), at(state{Good: "2", Trial: &trial{"i", "3", 3}}), "3",
		},
		"begun too often": {
			at(state{Good: "2", Trial: &trial{"i", "3", maxStarts}}),
			at(state{
				Good: "2", Failure: &failure{"i", "the new agent was begun 3 times and did not reach the controller"},
			}), "2",
		},
		"begun too often, with nothing before": {
			at(state{Trial: &trial{"i", "3", maxStarts}}),
			at(state{Failure: &failure{"i", "the new agent was begun 3 times and did not reach the controller"}}), "",
		},
		"another base": {state{Base: "0.9", Good: "2"}, at(state{}), ""},
		"another base amid a trial": {
			state{Base: "0.9", Trial: &trial{"i", "3", 1}},
			at(state{Failure: &failure{"i", "another version was installed on the node: 1.0.0-base"}}), "",
		},
		"a base that moved": {state{Base: base.Version, BasePath: "/old"}, at(state{}), ""},
	} {
		next, runs := tt.was.boot(base)
		if runs != tt.runs || !reflect.DeepEqual(next, tt.next) {
			t.Errorf("%s: runs %q, %+v; want %q, %+v", name, runs, next, tt.runs, tt.next)
		}
	}
}

func TestTrialsEnd(t *testing.T) {
	s := state{Base: "1", Good: "2"}.try("i", "3")
	if s.Trial.Starts != 1 || s.Good != "2" {
		t.Errorf("%+v", s)
	}
	if won := s.confirmed(); won.Good != "3" || won.Before != "2" || won.Trial != nil {
		t.Errorf("%+v", won)
	}
	if lost := s.failed("why"); lost.Good != "2" || lost.Trial != nil || lost.Failure.ID != "i" ||
		!strings.Contains(lost.Failure.Message, "why") {
		t.Errorf("%+v", lost)
	}
}
