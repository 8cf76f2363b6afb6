package fault

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
)

// record is an instance as the controller lists it.
type record struct {
	ID, ExternalID, State, Message string
	Since                          time.Time // start date of its VM
}

// machine is a VM as the host shows it: a QEMU process or the file of a simulated VM.
type machine struct {
	Instance string // the instance that it names
	What     string // how it was found, for the report
	Running  bool
	Check    bool // the VM of a sanity test, not that of the instance itself
}

// world is what is there once everything is calm: every record and every VM.
type world struct {
	Records  []record
	Machines []machine

	// Of targets that save.
	Requests []api.SaveImage
	Versions []version      // in the registry
	Seeds    map[string]int // template -> versions that the run itself pushed
	SaveDirs []string       // what saves have left on the nodes
	Uploads  []upload       // that the registry has not finished
}

// findings are what a evaluation counts, with a sentence for each.
type findings struct {
	Lost, Orphans, Stuck, Wrong int
	Late                        int // versions of saves that were terminated in their last moment
	Problems                    []string
}

func (f *findings) lost(format string, args ...any) {
	f.Lost++
	f.Problems = append(f.Problems, "lost: "+fmt.Sprintf(format, args...))
}

func (f *findings) orphan(format string, args ...any) {
	f.Orphans++
	f.Problems = append(f.Problems, "orphan: "+fmt.Sprintf(format, args...))
}

func (f *findings) stuck(format string, args ...any) {
	f.Stuck++
	f.Problems = append(f.Problems, "stuck: "+fmt.Sprintf(format, args...))
}

func (f *findings) wrong(format string, args ...any) {
	f.Wrong++
	f.Problems = append(f.Problems, "wrong: "+fmt.Sprintf(format, args...))
}

// life is the history of one instance.
type life struct {
	external  string
	created   time.Duration // when its create was acknowledged; never when it was not
	asked     time.Duration // when the first terminate began; never when there was none
	agreed    time.Duration // when the first terminate was acknowledged; never when none was
	started   time.Duration // when it was first seen Started
	gone      time.Duration // when it was first found missing after agreed
	saving    time.Duration // when the first save began that was not refused; never when there was none
	saved     bool          // a save of it is done in the end, which ends the instance
	told      time.Duration // when a look first showed that; never when none did
	complaint bool          // one sentence an instance is enough
}

// never is later than everything.
const never = time.Duration(1<<63 - 1)

// rules are what a run allows.
type rules struct {
	// Errors are parts of the messages with which a kill may end an instance in Error, since its VM
	// was killed, or the agent that alone observed the end of its script. Every other Error is a
	// broken promise.
	Errors []string
}

// allow reports whether an instance may be in a state behind Started, or in Error.
func (r rules) allow(state, message string) bool {
	if state != "Error" {
		return len(r.Errors) > 0 && slices.Contains(failing, state)
	}
	return slices.ContainsFunc(r.Errors, func(part string) bool { return strings.Contains(message, part) })
}

// checkCalls holds every answer of the history against what was acknowledged before
// the question was asked.
func checkCalls(calls []call, requests []api.SaveImage, r rules, f *findings) {
	all := lives(calls, requests)
	for _, c := range calls {
		checkCall(all, c, r, f)
	}
}

// checkCall holds one answer against what was acknowledged before.
func checkCall(all map[string]*life, c call, r rules, f *findings) {
	if !slices.Contains([]op{opTerminate, opLook, opList, opWatch}, c.Op) {
		return
	}
	for _, id := range c.Instances {
		l := all[id]
		if l == nil || l.complaint || l.created > c.Begin {
			continue // nothing was promised yet
		}
		why := ""
		switch {
		case c.Op == opTerminate:
			why = wrongRefusal(l, c)
		case c.Acked:
			why = wrong(l, c, r)
		}
		if why != "" {
			l.complaint = true
			f.lost("instance %s: %s (%s at %s)", id, why, c.Op, c.End.Round(time.Millisecond))
		}
	}
}

// The states before Started, those of an instance whose VM ends, and those after an
// acknowledged termination.
var (
	waiting = []string{"Scheduling", "Pulling"}
	failing = []string{"Stopping", "Stopped"}
	ending  = []string{"Terminating", "Terminated", notFound}
)

// wrong returns what breaks a promise in one answer about one instance; "" when nothing does.
func wrong(l *life, c call, r rules) string {
	if l.agreed <= c.Begin {
		return wrongAfterTermination(l, c)
	}
	switch {
	case l.asked <= c.End: // a termination of unknown outcome is under way: both are right
		return ""
	case l.told <= c.Begin && !slices.Contains(ending, c.State):
		return "is " + c.State + " after its save was done"
	case l.saving <= c.End && (c.State == "Pushing" || l.saved && slices.Contains(ending, c.State)):
		return ""
	case c.State == notFound:
		return "acknowledged, never terminated, and gone"
	case c.State == "Started":
		l.started = min(l.started, c.End)
		return ""
	case slices.Contains(waiting, c.State) && l.started < c.Begin:
		return "was Started and is " + c.State + " again"
	case slices.Contains(waiting, c.State):
		return ""
	case r.allow(c.State, c.Message):
		return ""
	case slices.Contains(ending, c.State):
		return "is " + c.State + " and no call terminated it"
	default:
		return fmt.Sprintf("is %s: %s", c.State, c.Message)
	}
}

// wrongRefusal: the first termination of an acknowledged instance finds it, unless a
// save has ended it.
func wrongRefusal(l *life, c call) string {
	if !c.Acked && !l.saved && c.Message == "Not found" && c.Begin == l.asked {
		return "could not be terminated, since it was not found"
	}
	return ""
}

func wrongAfterTermination(l *life, c call) string {
	switch {
	case !slices.Contains(ending, c.State):
		return "is " + c.State + " after an acknowledged termination"
	case c.State == notFound:
		l.gone = min(l.gone, c.End)
	case l.gone < c.Begin:
		return "was gone and is " + c.State + " again"
	}
	return ""
}

// checkCalm compares the idle cloud with the history: nothing is in progress, every promise is
// kept, and there is exactly one VM for every instance that has one.
func checkCalm(book *ledger, w world, r rules, f *findings) {
	records := map[string]record{}
	for _, rec := range w.Records {
		records[rec.ID] = rec
		if !slices.Contains([]string{"Started", "Stopped", "Error"}, rec.State) {
			f.stuck("instance %s is %s: %s", rec.ID, rec.State, rec.Message)
		}
		if rec.State == "Error" && !r.allow(rec.State, rec.Message) {
			f.lost("instance %s ended in Error: %s", rec.ID, rec.Message)
		}
	}
	book.save(w.Requests)
	for _, id := range slices.Sorted(maps.Keys(book.lives)) {
		l := book.lives[id]
		_, there := records[id]
		switch {
		case l.created != never && l.asked == never && !l.saved && !there:
			f.lost("instance %s was acknowledged, never terminated, and is not listed", id)
		case l.agreed != never && there:
			f.lost("instance %s is still listed after an acknowledged termination", id)
		}
	}
	checkTwins(book.creates, w.Records, f)
	checkMachines(w.Machines, records, f)
}

// checkTwins looks for creates that made more instances than were acknowledged, and for instances
// without a request.
func checkTwins(creates map[string][]string, records []record, f *findings) {
	for _, rec := range records {
		ids, asked := creates[rec.ExternalID]
		switch {
		case !asked:
			f.orphan("instance %s has the external id %q that nobody asked for", rec.ID, rec.ExternalID)
		case ids != nil && !slices.Contains(ids, rec.ID):
			f.orphan("instance %s is a twin: its create acknowledged %v", rec.ID, ids)
		}
	}
}

func checkMachines(machines []machine, records map[string]record, f *findings) {
	count, running := map[string]int{}, map[string]bool{}
	for _, m := range machines {
		if !m.Check {
			count[m.Instance]++
			running[m.Instance] = running[m.Instance] || m.Running
		}
		switch _, known := records[m.Instance]; {
		case m.Check:
			f.orphan("VM of a sanity test: %s", m.What)
		case !known:
			f.orphan("VM of instance %q without a record: %s", m.Instance, m.What)
		case count[m.Instance] > 1:
			f.orphan("second VM of instance %s: %s", m.Instance, m.What)
		}
	}
	for id, rec := range records {
		if rec.State == "Started" && !running[id] {
			f.lost("instance %s is Started and has no running VM", id)
		}
	}
}

// checkEnd holds the world after everything was terminated: it must be empty.
func checkEnd(w world, f *findings) {
	for _, rec := range w.Records {
		f.stuck("instance %s is %s after everything was terminated: %s", rec.ID, rec.State, rec.Message)
	}
	for _, m := range w.Machines {
		f.orphan("VM of instance %q after everything was terminated: %s", m.Instance, m.What)
	}
	for _, dir := range w.SaveDirs {
		f.orphan("a save has left %s after everything was terminated", dir)
	}
}
