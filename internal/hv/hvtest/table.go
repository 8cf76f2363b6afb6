package hvtest

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

// capability is a row of the table that is printed at the end of a run.
type capability struct {
	name    string        // readable name
	ability hv.Capability // "" = every driver has to offer it
	seen    []string      // the checks that prove it
}

// capabilities is that table. A new ability of hv needs a row here, with the names of the checks
// that prove it; a check of one driver is a Subject.More.
var capabilities = []capability{
	{"start, stop, delete", "", []string{"start", "orderly stop", "start after stop", "forced stop", "delete"}},
	{"failed starts end", "", []string{"boot time-out", "cancelled start"}},
	{"crash is noticed", "", []string{"killed hypervisor"}},
	{"many at once", "", []string{"concurrent starts"}},
	{"run commands", "", []string{"exec", "big output", "time-out", "cancelled command", "concurrent commands"}},
	{"known to a new agent", "", []string{"new agent"}},
	{"real guest", hv.CanBoot, []string{"exec", "background child", "time-out"}},
	{"port rules", hv.CanForward, []string{"port rules"}},
	{"outlives the agent", hv.CanPersist, []string{"new agent"}},
	{"guests of PCs", hv.CanPC, []string{"start"}},
	{"macOS guests", hv.CanMacOS, []string{"start"}},
	{"archives of anka", hv.CanAnkaImages, []string{"start"}},
	{"save", hv.CanSave, []string{"save of a stopped guest", "save of a stopped VM"}},
	{"save of a running guest", hv.CanSuspend, []string{"save", "source goes on"}},
	{"resume elsewhere", hv.CanSuspend, []string{
		"resume elsewhere", "port rules of a clone", "save of a resumed VM", "state that does not fit", "damaged state",
	}},
	{"failed save harms nothing", hv.CanSuspend, []string{
		"failing steps", "new agent in a save", "ended in a save", "save given up",
	}},
	{"restart with changes", hv.CanRestart, []string{"restart with changes"}},
	{"restart after saves", hv.CanSave, []string{"restart"}},
	{"restart given up", hv.CanSuspend, []string{"restart given up"}},
	{"machine options", "", []string{"machine options", "machine defaults"}},
	{"requested MAC address", hv.CanSetMAC, []string{"machine options", "machine defaults"}},
	{"requested identity", hv.CanSetIdentity, []string{"machine options"}},
	{"standard VGA", hv.CanVGA, []string{"machine defaults"}},
	{"machine of a state", hv.CanSuspend, []string{"saved machine"}},
	{"host network", hv.CanNetworkHost, []string{"network mode host"}},
	{"no network", hv.CanDisconnect, []string{"network mode disconnected"}},
	{"disk size", hv.CanResize, []string{"disk size"}},
	{"VNC", hv.CanVNC, []string{"screen"}},
	{"console", hv.CanConsole, []string{"console", "console without a password"}},
	{"USB (emulated)", hv.CanUSB, []string{"USB devices"}},
	{"bridge network", hv.CanBridge, []string{"network mode bridge"}},
	{"kept off the host", hv.CanIsolate, []string{"host's loopback"}},
	{"bounded resources", hv.CanLimit, nil},
	{"confined process", hv.CanSandbox, nil},
}

// verdict is the result of a check.
type verdict struct {
	word string // "yes", "NO", "skipped"
	took time.Duration
}

// Check proves an ability of one driver alone.
type Check struct {
	Ability hv.Capability
	Name    string
	Run     func(t *testing.T, vm hv.VM) // on a VM that runs, with one port rule where the driver can
}

// table returns the rows of a run, and the abilities that the driver reports without a check that
// proved them.
func (s *suite) table() (text string, unseen []string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "capability\toffered\tseen working\n")
	known := map[hv.Capability]bool{}
	for _, c := range capabilities {
		known[c.ability] = true
		checks := slices.Clone(c.seen)
		for _, m := range s.More {
			if m.Ability == c.ability {
				checks = append(checks, m.Name)
			}
		}
		offered := c.ability == "" || s.host.HasCapability(c.ability)
		if !offered {
			fmt.Fprintf(w, "%s\tno\t-\n", c.name)
			continue
		}
		word, how := s.combineChecks(checks)
		if word == "not tried" {
			unseen = append(unseen, c.name)
		}
		fmt.Fprintf(w, "%s\tyes\t%s\n", c.name, strings.TrimRight(word+": "+strings.Join(how, ", "), ": "))
	}
	for _, a := range s.host.Capabilities {
		if !known[a] {
			unseen = append(unseen, string(a))
			fmt.Fprintf(w, "%s\tyes\tnot tried\n", a)
		}
	}
	_ = w.Flush()
	return b.String(), unseen
}

// combineChecks combines the checks of a row: one that failed fails the row, and skipped ones are not counted.
func (s *suite) combineChecks(checks []string) (word string, how []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	word = "not tried"
	for _, name := range checks {
		v := s.verdicts[name]
		switch {
		case v.word == "NO":
			word = "NO"
		case v.word == "yes" && word == "not tried":
			word = "yes"
		}
		if v.word == "yes" || v.word == "NO" {
			how = append(how, fmt.Sprintf("%s %.2f s", name, v.took.Seconds()))
		}
	}
	if word == "NO" {
		how = slices.DeleteFunc(how, func(h string) bool {
			return !slices.ContainsFunc(checks,
				func(c string) bool { return s.verdicts[c].word == "NO" && strings.HasPrefix(h, c+" ") })
		})
	}
	return word, how
}

// report prints the table. A run without selected checks has to prove everything that the driver
// offers; a short one leaves that to a full run.
func (s *suite) report(t *testing.T) {
	text, unseen := s.table()
	h := s.host
	t.Logf("driver %s %s, accelerator %s, machine %s, cpu %s\n%s", h.Driver, h.Version, h.Accelerator, h.Machine, h.CPU,
		text)
	if f := flag.Lookup("test.run"); s.Short || (f != nil && strings.Contains(f.Value.String(), "/")) {
		return
	}
	for _, c := range capabilities {
		for _, name := range c.seen {
			if _, ran := s.verdicts[name]; !ran && !t.Failed() && s.host.HasCapability(c.ability) {
				t.Errorf("the row %q names the check %q, which there is not", c.name, name)
			}
		}
	}
	for _, name := range unseen {
		t.Errorf("the driver offers %q, and no check shows it: add one to hvtest, or to the Subject's More", name)
	}
}
