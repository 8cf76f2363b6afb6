package update

import (
	"reflect"
	"strings"
	"testing"
)

func TestBootDecides(t *testing.T) {
	base := program{"1.0.0-base", "/usr/bin/buildnode"}
	at := func(s programState) programState {
		s.BaseVersion, s.BasePath = base.Version, base.Path
		return s
	}
	for name, tt := range map[string]struct {
		was, next programState
		runs      string
	}{
		"nothing was installed": {at(programState{}), at(programState{}), ""},
		"a good version": {
			at(programState{ConfirmedVersion: "2"}), at(programState{ConfirmedVersion: "2"}),
			"2",
		},
		"one on trial": {
			at(programState{Trial: &trial{"i", "3", 1}}), at(programState{Trial: &trial{"i", "3", 2}}), "3",
		},
		"on trial after a good one": {
			at(programState{ConfirmedVersion: "2", Trial: &trial{"i", "3", 2}}),
			at(programState{ConfirmedVersion: "2", Trial: &trial{"i", "3", 3}}), "3",
		},
		"begun too often": {
			at(programState{ConfirmedVersion: "2", Trial: &trial{"i", "3", maxTrialStarts}}),
			at(programState{
				ConfirmedVersion: "2",
				Failure: &updateFailure{
					"i", "the new agent was begun 3 times and did not reach the controller",
				},
			}), "2",
		},
		"begun too often, with nothing before": {
			at(programState{Trial: &trial{"i", "3", maxTrialStarts}}),
			at(programState{
				Failure: &updateFailure{"i", "the new agent was begun 3 times and did not reach the controller"},
			}), "",
		},
		"another base": {programState{BaseVersion: "0.9", ConfirmedVersion: "2"}, at(programState{}), ""},
		"another base amid a trial": {
			programState{BaseVersion: "0.9", Trial: &trial{"i", "3", 1}},
			at(programState{Failure: &updateFailure{"i", "another version was installed on the node: 1.0.0-base"}}), "",
		},
		"a base that moved": {programState{BaseVersion: base.Version, BasePath: "/old"}, at(programState{}), ""},
	} {
		next, runs := tt.was.chooseVersion(base)
		if runs != tt.runs || !reflect.DeepEqual(next, tt.next) {
			t.Errorf("%s: runs %q, %+v; want %q, %+v", name, runs, next, tt.runs, tt.next)
		}
	}
}

func TestTrialsEnd(t *testing.T) {
	s := programState{BaseVersion: "1", ConfirmedVersion: "2"}.withTrial("i", "3")
	if s.Trial.StartCount != 1 || s.ConfirmedVersion != "2" {
		t.Errorf("%+v", s)
	}
	if won := s.withTrialConfirmed(); won.ConfirmedVersion != "3" || won.PreviousVersion != "2" || won.Trial != nil {
		t.Errorf("%+v", won)
	}
	if lost := s.withTrialFailed("why"); lost.ConfirmedVersion != "2" || lost.Trial != nil ||
		lost.Failure.UpdateID != "i" ||
		!strings.Contains(lost.Failure.Message, "why") {
		t.Errorf("%+v", lost)
	}
}
