package fault

import (
	"strings"
	"testing"
)

func TestCheckEvents(t *testing.T) {
	whole := []string{startVM, vmStarted, terminateVM, vmTerminated}
	for name, tt := range map[string]struct {
		events []string
		want   string // of the first problem; "": none
	}{
		"whole": {whole, ""},
		"told again": {append(append([]string{}, whole[:2]...),
			append(append([]string{}, whole[:2]...), whole[2:]...)...), ""},
		"nothing":         {nil, "has no StartVM"},
		"no end":          {whole[:3], "has no VMTerminated"},
		"never asked":     {[]string{startVM, vmStarted, vmTerminated}, "has no TerminateVM"},
		"ended too early": {[]string{startVM, vmTerminated, vmStarted, terminateVM}, "VMTerminated before VMStarted"},
		"begun too late":  {[]string{vmStarted, startVM, terminateVM, vmTerminated}, "VMStarted before StartVM"},
	} {
		t.Run(name, func(t *testing.T) {
			book := newLedger()
			book.get("i").created, book.get("i").started, book.get("i").agreed = 1, 2, 3
			events := []toldEvent{{Name: "ConfigNode"}}
			for _, e := range tt.events {
				events = append(events, toldEvent{e, "i"})
			}
			var f findings
			checkInstanceEvents("x", book.lives, events, &f)
			got := strings.Join(f.Problems, "; ")
			if (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
				t.Errorf("found %q", got)
			}
		})
	}
	var f findings
	checkInstanceEvents("x", nil, []toldEvent{readTold("{torn")}, &f)
	if f.Wrong != 1 {
		t.Errorf("a torn line: %v", f.Problems)
	}
}
