package fault

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
)

// The statuses of a save request.
const (
	savePending = "pending"
	saveDone    = "done"
	saveError   = "error"
)

// saved is one save request with its history.
type saved struct {
	api.SaveImage
	expected saveExpectation
	call     call // the POST that requested it
}

// message is why it failed; "" without a message.
func (s saved) message() string {
	if s.Error == nil {
		return ""
	}
	return s.Error.Message
}

// savedIn joins the requests with the calls that asked for them, by their tags. What
// cannot be joined is reported.
func savedIn(calls []call, requests []api.SaveImage, f *findings) []saved {
	asked := map[string]call{}
	for _, c := range calls {
		if c.Op == opSave {
			asked[c.Save.Tag] = c
		}
	}
	listed, tags := map[string]bool{}, map[string]string{}
	var all []saved
	for _, r := range requests {
		listed[r.ID] = true
		c, known := asked[r.Request.Tag]
		switch twin := tags[r.Request.Tag]; {
		case !known:
			f.orphan("save request %s has the tag %q that nobody asked for", r.ID, r.Request.Tag)
			continue
		case twin != "":
			f.orphan("save request %s is a twin of %s: both are for tag %s", r.ID, twin, r.Request.Tag)
			continue
		case c.Refused:
			f.orphan("save request %s is there although it was refused: %s", r.ID, c.Message)
		}
		tags[r.Request.Tag] = r.ID
		all = append(all, saved{r, *c.Save, c})
	}
	for _, tag := range slices.Sorted(maps.Keys(asked)) {
		if c := asked[tag]; c.Acked && !listed[c.Request] {
			f.lost("save request %s (tag %s) was acknowledged and is not listed", c.Request, tag)
		}
	}
	return all
}

// checkSaves holds the save requests of the calm world against the history, the
// registry and what is left on the nodes.
func checkSaves(calls []call, w world, f *findings) {
	all, cut := savedIn(calls, w.Requests, f), cutShort(calls, w.Requests)
	states := map[string]record{}
	for _, rec := range w.Records {
		states[rec.ID] = rec
	}
	held := map[tagged]bool{}
	for _, v := range w.Versions {
		held[tagged{v.Template, v.Tag}] = true
	}
	for _, s := range all {
		there := held[tagged{s.Request.TemplateID, s.Request.Tag}]
		rec, listed := states[s.Request.InstanceID]
		switch s.Status {
		case savePending:
			f.stuck("save request %s of instance %s is pending", s.ID, s.Request.InstanceID)
		case saveDone:
			checkDone(s, there || reverted(s, all), f)
			if listed {
				f.lost("instance %s is %s although its save %s is done", rec.ID, rec.State, s.ID)
			}
		case saveError:
			checkFailed(s, there, cut, f)
			if listed && rec.State == "Stopped" {
				f.lost("instance %s is Stopped after its save %s failed: %s", rec.ID, s.ID, s.message())
			}
		default:
			f.wrong("save request %s has the status %q", s.ID, s.Status)
		}
	}
	checkVersions(all, w, f)
	checkRestarts(calls, w.Records, f)
	checkUploads(all, w.Uploads, f)
	for _, dir := range w.SaveDirs {
		f.orphan("a save has left %s", dir)
	}
}

// checkDone checks that a save that is done has its version in the registry, no error, and the
// result of its script.
func checkDone(s saved, there bool, f *findings) {
	switch {
	case s.expected.Fails:
		f.wrong("save request %s is done although its script failed", s.ID)
	case s.Error != nil:
		f.wrong("save request %s is done and has the error %q", s.ID, s.message())
	case s.expected.Script != "" && (s.ScriptResult == nil || s.ScriptResult.ReturnCode != 0):
		f.wrong("save request %s is done and does not say that its script ended well: %+v", s.ID, s.ScriptResult)
	case !there:
		f.lost("save request %s is done and template %s has no tag %s", s.ID, s.Request.TemplateID, s.Request.Tag)
	}
}

// checkFailed checks that a save that failed made no version, and has a message. One that was cut
// short by a termination may have any message; and the termination may come between the registry's
// commit and the node's report of it, so that an unreported version is left. Those are counted
// separately.
func checkFailed(s saved, there bool, cut map[string]bool, f *findings) {
	switch {
	case there && cut[s.ID]:
		f.Late++
	case there:
		f.wrong("save request %s ended in error (%s) and its version %s is in the registry", s.ID, s.message(),
			s.Request.Tag)
	case s.message() == "":
		f.wrong("save request %s ended in error and does not say why", s.ID)
	case cut[s.ID] || s.expected.mayFail(s.message()):
	case !s.expected.Fails:
		f.wrong("save request %s of instance %s ended in error: %s", s.ID, s.Request.InstanceID, s.message())
	case s.Error.Code == nil || *s.Error.Code == 0:
		f.wrong("save request %s should have ended with the code of its script, not with: %s", s.ID, s.message())
	}
}

// cutShort returns the requests that a termination may have ended: it was requested before any
// response showed that they had ended.
func cutShort(calls []call, requests []api.SaveImage) map[string]bool {
	seen, cut := map[string]time.Duration{}, map[string]bool{}
	for _, c := range calls {
		if c.Op == opRequest && (c.State == saveDone || c.State == saveError) && seen[c.Request] == 0 {
			seen[c.Request] = c.End
		}
	}
	all := lives(calls, requests)
	for _, r := range requests {
		asked, end := all[r.Request.InstanceID], seen[r.ID]
		cut[r.ID] = asked != nil && asked.asked != never && (end == 0 || asked.asked < end)
	}
	return cut
}

// mayFail reports whether a save may fail with a message.
func (w saveExpectation) mayFail(message string) bool {
	return slices.ContainsFunc(w.May, func(part string) bool { return strings.Contains(message, part) })
}

// reverted reports whether another save may have removed a version of a template: one with a revert
// that is done, or that continued to its end under a termination.
func reverted(s saved, all []saved) bool {
	return slices.ContainsFunc(all, func(o saved) bool {
		return o.ID != s.ID && o.expected.Revert && o.Request.TemplateID == s.Request.TemplateID &&
			o.Status != savePending
	})
}

// tagged names a version.
type tagged struct{ template, tag string }

// checkVersions checks that no tag exists twice, and that every version was requested.
func checkVersions(all []saved, w world, f *findings) {
	asked, count := map[tagged]bool{}, map[tagged]int{}
	for _, s := range all {
		asked[tagged{s.Request.TemplateID, s.Request.Tag}] = true
	}
	for _, v := range w.Versions {
		n := tagged{v.Template, v.Tag}
		count[n]++
		switch {
		case count[n] == 2:
			f.wrong("template %s has the tag %s twice", v.Template, v.Tag)
		case v.Tag != seedTag && !asked[n]:
			f.orphan("template %s has the tag %s that nobody asked for", v.Template, v.Tag)
		}
	}
	checkReverts(all, w, f)
}

// checkReverts counts: a save adds one version, and a revert of the latest takes
// exactly one away. Saves that were terminated may have come through or not.
func checkReverts(all []saved, w world, f *findings) {
	least, perhaps, have := maps.Clone(w.Seeds), map[string]int{}, map[string]int{}
	for _, s := range all {
		switch id := s.Request.TemplateID; {
		case w.Seeds[id] == 0 || s.expected.Revert:
		case s.Status == saveDone:
			least[id]++
		default:
			perhaps[id]++
		}
	}
	for _, v := range w.Versions {
		have[v.Template]++
	}
	for _, id := range slices.Sorted(maps.Keys(least)) {
		if n := have[id]; n < least[id] {
			f.lost("template %s has %d versions; its saves and reverts must have left %d", id, n, least[id])
		} else if n > least[id]+perhaps[id] {
			f.wrong("template %s has %d versions; its saves and reverts must have left %d to %d", id, n, least[id],
				least[id]+perhaps[id])
		}
	}
}

// checkUploads: a push that the registry still waits for is one whose save has failed.
func checkUploads(all []saved, uploads []upload, f *findings) {
	for _, u := range uploads {
		i := slices.IndexFunc(all, func(s saved) bool {
			return s.Request.Tag == u.Tag &&
				s.Request.TemplateID == u.Template
		})
		switch {
		case i < 0:
			f.orphan("push of tag %s that nobody asked for: %s", u.Tag, u.Dir)
		case all[i].Status == saveDone:
			f.orphan("second push of tag %s, whose save is done: %s", u.Tag, u.Dir)
		}
	}
}

// checkRestarts: a VM whose restart was acknowledged was started after that.
func checkRestarts(calls []call, records []record, f *findings) {
	before := map[string]call{}
	for _, c := range calls {
		if c.Op == opRestart && c.Acked {
			before[c.Instances[0]] = c
		}
	}
	for _, rec := range slices.SortedFunc(slices.Values(records),
		func(a, b record) int { return cmp.Compare(a.ID, b.ID) }) {
		if c, ok := before[rec.ID]; ok && rec.State == "Started" && !rec.Since.After(c.Since) {
			f.stuck("instance %s was to be restarted and its VM runs since %s", rec.ID, rec.Since)
		}
	}
}

// checkRequests compares every look at a save request with the earlier ones: what was acknowledged
// is found, and what has ended does not change.
func checkRequests(calls []call, f *findings) {
	acked, ended, told := map[string]call{}, map[string]call{}, map[string]bool{}
	for _, c := range calls {
		if c.Op == opSave && c.Acked {
			acked[c.Request] = c
		}
	}
	for _, c := range calls {
		if c.Op != opRequest || !c.Acked || told[c.Request] {
			continue
		}
		first, over := ended[c.Request]
		made, known := acked[c.Request]
		switch {
		case c.State == notFound && known && made.End <= c.Begin:
			told[c.Request] = true
			f.lost("save request %s was acknowledged and is not found", c.Request)
		case over && first.End <= c.Begin && c.State != first.State:
			told[c.Request] = true
			f.wrong("save request %s was %s and is %s", c.Request, first.State, c.State)
		case !over && (c.State == saveDone || c.State == saveError):
			ended[c.Request] = c
		}
	}
}
