package fault

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/buildyard/buildyard/api"
)

// asked is an acknowledged save of instance a with the request r and the tag t.
func asked(change func(*call)) call {
	c := call{
		Op: opSave, Begin: 3, End: 4, Instances: []string{"a"}, Acked: true, Request: "r",
		Save: &saveExpectation{
			saveOrder: saveOrder{Instance: "a", Tag: "t", Target: "T", Suspend: true},
			May:       []string{"killed"},
		},
	}
	if change != nil {
		change(&c)
	}
	return c
}

// answer is a save request of instance a for tag t of template T.
func answer(status, message string) api.SaveImage {
	r := api.SaveImage{
		ID: "r", Status: status, Request: api.SaveImageRequest{InstanceID: "a", TemplateID: "T", Tag: "t"},
	}
	if message != "" {
		r.Error = &api.SaveImageError{Message: message, Type: "save.Error"}
	}
	return r
}

// coded is a request that ended with the exit code of its script.
func coded(code int) api.SaveImage {
	r := answer(saveError, "Script execution failed")
	r.Error.Code = &code
	return r
}

func TestCheckSaves(t *testing.T) {
	made := create(1, 2, "x", "a")
	version1, version2 := version{Template: "T", Tag: seedTag}, version{Template: "T", Tag: "t", Number: 1}
	started := []record{{ID: "a", State: "Started"}}
	failing := asked(func(c *call) { c.Save.Fails = true })
	scripted := asked(func(c *call) { c.Save.Script = "true" })
	ran := answer(saveDone, "")
	ran.ScriptResult = &api.ScriptResult{}
	// other is a second save of another instance into the same template.
	other := asked(func(c *call) {
		c.Instances, c.Request = []string{"b"}, "q"
		c.Save = &saveExpectation{saveOrder: saveOrder{Instance: "b", Tag: "u", Target: "T", Revert: true}}
	})
	replaced := answer(saveDone, "")
	replaced.ID, replaced.Request.InstanceID, replaced.Request.Tag = "q", "b", "u"
	version3 := version{Template: "T", Tag: "u", Number: 1}
	twin := answer(saveDone, "")
	twin.ID = "r2"

	both := []version{version1, version2}
	cases := map[string]struct {
		calls      []call
		requests   []api.SaveImage
		versions   []version
		records    []record
		kind, want string
	}{
		"done": {[]call{made, asked(nil)}, []api.SaveImage{answer(saveDone, "")}, both, nil, "", ""},
		"pending for ever": {
			[]call{made, asked(nil)},
			[]api.SaveImage{answer(savePending, "")},
			both,
			nil, "stuck: ", "is pending",
		},
		"a status of its own": {
			[]call{made, asked(nil)},
			[]api.SaveImage{answer("begun", "")},
			both, nil,
			"wrong: ", "the status",
		},
		"request lost": {[]call{made, asked(nil)}, nil, both[:1], started, "lost: ", "is not listed"},
		"done, instance there": {
			[]call{made, asked(nil)},
			[]api.SaveImage{answer(saveDone, "")},
			both, started,
			"lost: ", "although its save",
		},
		"done with an error": {
			[]call{made, asked(nil)},
			[]api.SaveImage{answer(saveDone, "why")},
			both,
			nil, "wrong: ", "has the error",
		},
		"done despite its script": {
			[]call{made, failing},
			[]api.SaveImage{answer(saveDone, "")},
			both, nil, "wrong: ",
			"although its script",
		},
		"done without its script": {
			[]call{made, scripted},
			[]api.SaveImage{answer(saveDone, "")},
			both, nil, "wrong: ",
			"its script ended well",
		},
		"done after its script": {[]call{made, scripted}, []api.SaveImage{ran}, both, nil, "", ""},
		"script failed":         {[]call{made, failing}, []api.SaveImage{coded(3)}, both[:1], started, "", ""},
		"script without code": {
			[]call{made, failing},
			[]api.SaveImage{answer(saveError, "no")},
			both[:1], started,
			"wrong: ", "code of its script",
		},
		"failed by a kill": {
			[]call{made, asked(nil)},
			[]api.SaveImage{answer(saveError, "agent killed")},
			both[:1], started, "", "",
		},
		"failed": {
			[]call{made, asked(nil)},
			[]api.SaveImage{answer(saveError, "busy")},
			both[:1],
			started, "wrong: ", "ended in error: busy",
		},
		"failed without a word": {
			[]call{made, asked(nil)},
			[]api.SaveImage{answer(saveError, "")},
			both[:1], started,
			"wrong: ", "does not say why",
		},
		"failed with a version": {
			[]call{made, asked(nil)},
			[]api.SaveImage{answer(saveError, "agent killed")},
			both,
			started, "wrong: ", "is in the registry",
		},
		"failed and stopped": {
			[]call{made, asked(nil)},
			[]api.SaveImage{answer(saveError, "agent killed")},
			both[:1],
			[]record{{ID: "a", State: "Stopped"}},
			"lost: ", "is Stopped",
		},
		"terminated": {
			[]call{made, asked(nil), terminate(5, 6, true, "a")},
			[]api.SaveImage{answer(saveError, "terminated")},
			both[:1], nil, "", "",
		},
		"failed, then terminated": {
			[]call{
				made, asked(nil),
				{Op: opRequest, Begin: 4, End: 5, Request: "r", State: saveError, Acked: true},
				terminate(6, 7, true, "a"),
			},
			[]api.SaveImage{answer(saveError, "busy")},
			both[:1], nil, "wrong: ", "ended in error: busy",
		},
		"nobody's": {
			[]call{made},
			[]api.SaveImage{answer(saveError, "no")},
			both[:1], started, "orphan: ",
			"that nobody asked for",
		},
		"twin": {
			[]call{made, asked(nil)},
			[]api.SaveImage{answer(saveDone, ""), twin},
			both, nil, "orphan: ",
			"is a twin",
		},
		"refused": {
			[]call{made, asked(func(c *call) { c.Acked, c.Refused = false, true })},
			[]api.SaveImage{answer(saveError, "agent killed")},
			both[:1], started, "orphan: ", "it was refused",
		},
		"unknown answer": {[]call{made, asked(func(c *call) { c.Acked = false })}, nil, both[:1], started, "", ""},
		"reverted": {
			[]call{made, asked(nil), other},
			[]api.SaveImage{answer(saveDone, ""), replaced},
			[]version{version1, version3},
			nil, "", "",
		},
		"not reverted": {
			[]call{made, asked(nil), other},
			[]api.SaveImage{answer(saveDone, ""), replaced},
			[]version{version1, version2, version3},
			nil, "wrong: ", "must have left 2 to 2",
		},
	}
	for name, c := range cases {
		var f findings
		w := world{Requests: c.requests, Versions: c.versions, Records: c.records, Seeds: map[string]int{"T": 1}}
		checkSaves(c.calls, w, &f)
		expectOne(t, name, f, c.kind, c.want)
	}
}

// TestVersionsAreCounted: what is wrong with the versions of a template is seen twice,
// in their names and in their number.
func TestVersionsAreCounted(t *testing.T) {
	seed, made := version{Template: "T", Tag: seedTag}, version{Template: "T", Tag: "t"}
	cases := map[string]struct {
		versions []version
		want     findings
	}{
		"lost":      {[]version{seed}, findings{Lost: 2}},
		"tag twice": {[]version{seed, made, made}, findings{Wrong: 2}},
		"nobody's":  {[]version{seed, made, {Template: "T", Tag: "u"}}, findings{Orphans: 1, Wrong: 1}},
	}
	for name, c := range cases {
		var f findings
		w := world{Requests: []api.SaveImage{answer(saveDone, "")}, Versions: c.versions, Seeds: map[string]int{"T": 1}}
		checkSaves([]call{create(1, 2, "x", "a"), asked(nil)}, w, &f)
		if len(f.Problems) != 2 {
			t.Errorf("%s: problems %q", name, f.Problems)
		}
		if f.Problems = nil; !cmp.Equal(f, c.want) {
			t.Errorf("%s: %s", name, cmp.Diff(c.want, f))
		}
	}
}

// TestLateVersion: a termination that came between commit and report is counted, and is not a
// fault.
func TestLateVersion(t *testing.T) {
	var f findings
	w := world{
		Requests: []api.SaveImage{answer(saveError, "terminated")},
		Versions: []version{{Template: "T", Tag: seedTag}, {Template: "T", Tag: "t"}}, Seeds: map[string]int{"T": 1},
	}
	checkSaves([]call{create(1, 2, "x", "a"), asked(nil), terminate(5, 6, true, "a")}, w, &f)
	if f.Late != 1 || len(f.Problems) != 0 {
		t.Errorf("found %+v", f)
	}
}

// TestCheckCallsOfSaves: what a save may do to an instance, and nothing else may.
func TestCheckCallsOfSaves(t *testing.T) {
	made := create(1, 2, "x", "a")
	told := call{Op: opRequest, Begin: 5, End: 6, Request: "r", State: saveDone, Acked: true}
	gone := []api.SaveImage{answer(saveDone, "")}
	stays := []api.SaveImage{answer(saveError, "no")}
	refused := call{Op: opTerminate, Begin: 9, End: 10, Instances: []string{"a"}, Message: "Not found"}
	cases := map[string]struct {
		calls    []call
		requests []api.SaveImage
		want     string
	}{
		"pushing":                {[]call{made, asked(nil), look(5, 6, "a", "Pushing")}, stays, ""},
		"pushing without a save": {[]call{made, look(5, 6, "a", "Pushing")}, nil, "is Pushing"},
		"pushing, refused": {[]call{made, asked(func(c *call) { c.Refused, c.Acked = true, false }), look(5,
			6, "a", "Pushing")}, nil, "is Pushing"},
		"started again": {
			[]call{made, asked(nil), look(5, 6, "a", "Pushing"), look(7, 8, "a", "Started")},
			stays, "",
		},
		"gone by itself": {
			[]call{made, asked(nil), look(5, 6, "a", "Terminating"), look(7, 8, "a", notFound)},
			gone, "",
		},
		"gone, and it failed": {[]call{made, asked(nil), look(5, 6, "a", notFound)}, stays, "and gone"},
		"started after done": {
			[]call{made, asked(nil), told, look(7, 8, "a", "Started")},
			gone,
			"after its save was done",
		},
		"pushing after done": {
			[]call{made, asked(nil), told, look(7, 8, "a", "Pushing")},
			gone,
			"after its save was done",
		},
		"started while it ended":  {[]call{made, asked(nil), told, look(5, 8, "a", "Started")}, gone, ""},
		"not found, and it saved": {[]call{made, asked(nil), refused}, gone, ""},
		"not found, and it ran":   {[]call{made, asked(nil), refused}, stays, "could not be terminated"},
		"unknown, and it saved": {
			[]call{made, asked(func(c *call) { c.Acked = false }), look(5, 6, "a", notFound)},
			gone, "",
		},
	}
	for name, c := range cases {
		var f findings
		checkCalls(c.calls, c.requests, rules{}, &f)
		expectOne(t, name, f, "lost: ", c.want)
	}
}

func TestCheckRequests(t *testing.T) {
	seen := func(begin, end time.Duration, status string) call {
		return call{Op: opRequest, Begin: begin, End: end, Request: "r", State: status, Acked: true}
	}
	cases := map[string]struct {
		calls      []call
		kind, want string
	}{
		"orderly": {
			[]call{asked(nil), seen(5, 6, savePending), seen(7, 8, saveDone), seen(9, 10, saveDone)},
			"", "",
		},
		"forgotten":    {[]call{asked(nil), seen(5, 6, notFound)}, "lost: ", "is not found"},
		"asked before": {[]call{asked(nil), seen(1, 5, notFound)}, "", ""},
		"done, then failed": {
			[]call{asked(nil), seen(5, 6, saveDone), seen(7, 8, saveError)},
			"wrong: ",
			"was done and is error",
		},
		"ended, then not": {
			[]call{asked(nil), seen(5, 6, saveError), seen(7, 8, savePending)},
			"wrong: ",
			"was error and is pending",
		},
		"overlapping": {[]call{asked(nil), seen(5, 8, saveDone), seen(6, 9, savePending)}, "", ""},
	}
	for name, c := range cases {
		var f findings
		checkRequests(c.calls, &f)
		expectOne(t, name, f, c.kind, c.want)
	}
}

func TestCheckRestarts(t *testing.T) {
	before := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	asked := call{Op: opRestart, Begin: 3, End: 4, Instances: []string{"a"}, Acked: true, Since: before}
	unknown := asked
	unknown.Acked = false
	cases := map[string]struct {
		calls []call
		rec   record
		want  string
	}{
		"restarted":      {[]call{asked}, record{ID: "a", State: "Started", Since: before.Add(1)}, ""},
		"never":          {[]call{asked}, record{ID: "a", State: "Started", Since: before}, "was to be restarted"},
		"unknown answer": {[]call{unknown}, record{ID: "a", State: "Started", Since: before}, ""},
		"ended":          {[]call{asked}, record{ID: "a", State: "Error", Since: before}, ""},
	}
	for name, c := range cases {
		var f findings
		checkRestarts(c.calls, []record{c.rec}, &f)
		expectOne(t, name, f, "stuck: ", c.want)
	}
}

func TestCheckUploads(t *testing.T) {
	open := []upload{{"here", "T", "t"}}
	for name, c := range map[string]struct {
		requests []api.SaveImage
		want     string
	}{
		"of a save that failed": {[]api.SaveImage{answer(saveError, "no")}, ""},
		"of nobody":             {nil, "nobody asked for"},
		"after the end":         {[]api.SaveImage{answer(saveDone, "")}, "second push"},
	} {
		var f findings
		checkUploads(savedIn([]call{asked(func(c *call) { c.Acked = false })}, c.requests, &f), open, &f)
		expectOne(t, name, f, "orphan: ", c.want)
	}
}

// TestStep: the words of the controller become steps that can be waited for.
func TestStep(t *testing.T) {
	pushing := func(words string) api.Instance {
		return api.Instance{InstanceState: "Pushing", Message: "saving: " + words}
	}
	script := pushing("its script runs")
	if at := step(script); at != saveStep("script") {
		t.Errorf("it is at %q", at)
	}
	for words, want := range map[string]string{
		"waiting for its node": "waiting", "pushing 42 %": "pushing", "new words": "waiting",
	} {
		if at := step(pushing(words)); at != saveStep(want) {
			t.Errorf("%q is %q", words, at)
		}
	}
	for want, past := range map[string]bool{"waiting": true, "script": true, "saving": false, "pushing": false} {
		if reached(script, saveStep(want)) != past {
			t.Errorf("in its script it has reached %s: %v", want, !past)
		}
	}
	if !reached(api.Instance{InstanceState: "Terminated"}, saveStep("waiting")) {
		t.Error("an instance that has ended is waited for")
	}
}

func TestCheckVMIsNoVMOfItsInstance(t *testing.T) {
	var f findings
	vms := []machine{{Instance: "a", Running: true}, {Instance: "a", What: "here", Check: true}}
	checkMachines(vms, map[string]record{"a": {ID: "a", State: "Started"}}, &f)
	expectOne(t, "left", f, "orphan: ", "VM of a sanity test")
}

func TestCompare(t *testing.T) {
	w := saveExpectation{Holds: []string{"disk x", "memory x"}, Lacks: []string{"memory y"}}
	if err := compare(w, "disk x\nmemory x\nend\n"); err != nil {
		t.Error(err)
	}
	for _, stdout := range []string{
		"", "disk x\n", "memory x\n", "disk x\nmemory x\nmemory y\n", "disk xy\nmemory x\n",
	} {
		if err := compare(w, stdout); err == nil {
			t.Errorf("%q is taken", stdout)
		}
	}
}

// TestLeftovers: directories of saves and unfinished pushes are found, and nothing else.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"n1/saves/r1/delta0.qcow2":            "",
		"fleet/n2/saves/r2/vm.state":          "",
		"n1/templates/saves/x":                "", // a template may have any name
		"registry/upload_dir/s1/session.json": `{"template_id":"T","request":{"tag":"t"}}`,
		"registry/upload_dir/s2/session.json": `{"template_id":"T","request":{"tag":"u"},"result":{"tag":"u"}}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dirs, err := saveDirs(dir)
	if err != nil || len(dirs) != 2 {
		t.Errorf("found %v, %v", dirs, err)
	}
	pushes, err := uploads(filepath.Join(dir, "registry"))
	if err != nil || len(pushes) != 1 || pushes[0].Tag != "t" {
		t.Errorf("found %v, %v", pushes, err)
	}
}
