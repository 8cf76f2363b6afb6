package registry

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/blob"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

func mustBeBusy(t *testing.T, err error, says string) {
	t.Helper()
	e, ok := err.(*farm.Error) //nolint:errorlint // it comes as it was made
	if !ok || e.Code != farm.CodeBusy || e.RetryAfter <= 0 || !strings.Contains(e.Message, says) {
		t.Errorf("%v, want a refusal that says %q", err, says)
	}
}

// TestPushesOfOneCallerBlockNoOther: a caller that opens pushes without sending data meets its own limit, and
// those pushes end within minutes.
func TestPushesOfOneCallerBlockNoOther(t *testing.T) {
	base, clock := quickDir(t), newClock()
	clock.now = time.Now() // that of the files, by which a restart decides which pushes were idle
	r, err := Open(t.Context(), Options{Base: base, Now: clock.Now, MaxPushes: 16})
	must(t, err)
	defer r.Close()
	a := makeContent("disk", api.FileDisk, "a")
	begin := func(caller string, n int) error {
		_, err := r.NegotiateFor(t.Context(), caller, request(idA, fmt.Sprint(caller, n), a))
		return err
	}
	for n := range 4 {
		must(t, begin("hostile", n))
	}
	mustBeBusy(t, begin("hostile", 4),
		"You have 4 unfinished pushes, the limit per caller: a quarter of the setting SVC_MAX_PUSHES (16)")
	must(t, begin("root", 0))
	must(t, r.Close())
	r, err = Open(t.Context(), Options{Base: base, Now: clock.Now, MaxPushes: 16})
	must(t, err)
	defer r.Close()
	mustBeBusy(t, begin("hostile", 5), "You have 4 unfinished pushes") // a restart forgets nothing
	for n := range 11 {
		must(t, begin(fmt.Sprint("other", n), 0))
	}
	mustBeBusy(t, begin("one more", 0), "Limit of 16 unfinished pushes reached (setting SVC_MAX_PUSHES)")
	clock.add(r.opts.EmptyPushTimeout + time.Second)
	must(t, begin("one more", 0))
	if n := len(r.uncommittedSessions()); n != 1 {
		t.Errorf("%d pushes are open, of which nothing came for minutes", n)
	}
}

// TestPushWithBytesStays: minutes end only what nothing was sent of.
func TestPushWithBytesStays(t *testing.T) {
	clock := newClock()
	r := open(t, t.TempDir(), clock)
	a := makeContent("disk", api.FileDisk, "a")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", a))
	must(t, err)
	must(t, r.PutPart(t.Context(), s.Session, a.spec.Name, 0, a.part()))
	empty := content{spec: api.PushFile{Name: "empty", Kind: api.FileDisk}, index: encodeEmpty(t)}
	index, err := r.Negotiate(t.Context(), request(idA, "v2", empty))
	must(t, err)
	must(t, r.PutIndex(t.Context(), index.Session, "empty", empty.root(), bytes.NewReader(empty.index.Encoded())))
	clock.add(30 * time.Minute)
	must(t, r.CollectGarbage(t.Context()))
	for what, id := range map[string]string{"a part": s.Session, "an index": index.Session} {
		if _, err := r.PushSession(t.Context(), id); err != nil {
			t.Errorf("%s was sent: %v", what, err)
		}
	}
}

// encodeEmpty makes the index of a disk without a byte.
func encodeEmpty(t *testing.T) *blob.Index {
	t.Helper()
	x, err := blob.Encode(t.Context(), source{bytes.NewReader(nil)}, blob.EncodeOptions{Kind: blob.KindDisk},
		func(blob.Frame, int64, []byte) error { return nil })
	must(t, err)
	return x
}

// TestReservationsOfOneCaller: the reservations of one caller leave capacity for others, and a second push of
// that caller waits for the first.
func TestReservationsOfOneCaller(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	free, _, err := r.store.Space(t.Context())
	must(t, err)
	huge := makeContent("disk", api.FileDisk, "huge")
	huge.spec.Size, huge.spec.Data = free*9/10, free*9/10
	begin := func(caller, tag string, size int64) error {
		req := request(idA, tag, huge)
		req.Files[0].Size, req.Files[0].Data = size, size
		_, err := r.NegotiateFor(t.Context(), caller, req)
		return err
	}
	must(t, begin("hostile", "v1", free*9/10)) // a single push is as large as it is
	mustBeBusy(t, begin("hostile", "v2", mib),
		"the limit per caller: 50 % of the free space (setting SVC_MAX_PUSH_RESERVATION)")
	must(t, begin("root", "v1", free/4))
	if err := begin("third", "v1", free/2); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("more than there is: %v", err)
	}
}

// TestFinishedPushLeavesNothing: a committed push leaves no files on disk, and a repeated commit is answered,
// also after a restart.
func TestFinishedPushLeavesNothing(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	a := makeContent("disk", api.FileDisk, "a")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", a))
	must(t, err)
	roots, err := send(r, s, []content{a})
	must(t, err)
	first, err := r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots})
	must(t, err)
	if left, _ := os.ReadDir(filepath.Join(base, layout.UploadDir)); len(left) != 0 {
		t.Errorf("%d uploads left", len(left))
	}
	for _, when := range []string{"at once", "after a restart"} {
		again, err := r.CommitPush(t.Context(), s.Session, api.PushCommit{Roots: roots})
		if err != nil || again != first {
			t.Errorf("%s: %+v, %v, want %+v", when, again, err, first)
		}
		if target, err := r.PushTarget(s.Session); err != nil || target.Exists || target.TemplateID != idA {
			t.Errorf("%s: %+v, %v", when, target, err)
		}
		must(t, r.Close())
		r = open(t, base, clock)
	}
}

// TestMisplacedPart: a part that was sent to a wrong offset is not taken for the beginning of its layer.
func TestMisplacedPart(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	a := makeContent("disk", api.FileDisk, "a")
	s, err := r.Negotiate(t.Context(), request(idA, "v1", a))
	must(t, err)
	must(t, r.PutPart(t.Context(), s.Session, a.spec.Name, 64, a.part()))
	indexErr := r.PutIndex(t.Context(), s.Session, a.spec.Name, a.root(), bytes.NewReader(a.index.Encoded()))
	commit := api.PushCommit{Roots: map[string]string{a.spec.Name: a.root()}}
	if _, err := r.CommitPush(t.Context(), s.Session, commit); farm.CodeOf(err) != farm.CodeConflict {
		t.Fatalf("%v, and of the index: %v", err, indexErr)
	}
	mustPush(t, r, request(idA, "v1", a), a)
	must(t, verifyAll(r))
}

// TestLogRowsOfOneCaller: rows are bounded in number and bytes, per caller and in total, until the minute ends.
func TestLogRowsOfOneCaller(t *testing.T) {
	clock := newClock()
	r, err := Open(t.Context(), Options{Base: t.TempDir(), Now: clock.Now, MaxLogRows: 40, MaxLogRowsBytes: 4000})
	must(t, err)
	defer r.Close()
	send := func(caller string, rows, size int) error {
		list := make([]api.LogRow, rows)
		for i := range list {
			list[i] = api.LogRow{Service: "s", MachineName: "m", Content: strings.Repeat("x", size)}
		}
		_, err := r.AppendLogRows(caller, list)
		return err
	}
	must(t, send("hostile", 10, 1))
	mustBeBusy(t, send("hostile", 1, 1),
		"You have sent 10 log rows in this minute, the limit per caller: a quarter of the setting SVC_MAX_LOG_ROWS "+
			"(40)")
	must(t, send("node", 1, 900))
	mustBeBusy(t, send("node", 1, 900), "a quarter of the setting SVC_MAX_LOG_ROW_BYTES (4000)")
	must(t, send("b", 10, 1))
	must(t, send("c", 10, 1))
	mustBeBusy(t, send("d", 10, 1), "the limit is 40 (setting SVC_MAX_LOG_ROWS)")
	clock.add(time.Minute)
	must(t, send("hostile", 10, 1))
	clock.add(time.Minute)
	for _, caller := range []string{"a", "b", "c", "d"} {
		must(t, send(caller, 1, 998)) // 1000 bytes with the names of service and machine
	}
	mustBeBusy(t, send("e", 1, 1),
		"4000 bytes of log rows were accepted in this minute; the limit is 4000 (setting SVC_MAX_LOG_ROW_BYTES)")
}

// TestEventsCountAsLogRows: events are bounded together with the rows of their caller.
func TestEventsCountAsLogRows(t *testing.T) {
	clock := newClock()
	r, err := Open(t.Context(), Options{Base: t.TempDir(), Now: clock.Now, MaxLogRows: 40, MaxLogRowsBytes: 4000})
	must(t, err)
	defer r.Close()
	send := func(caller string, events, size int) error {
		list := slices.Repeat([][]byte{fmt.Appendf(nil, `{"a":%q}`, strings.Repeat("x", size))}, events)
		_, err := r.AppendEvents(caller, list)
		return err
	}
	must(t, send("hostile", 10, 1))
	mustBeBusy(t, send("hostile", 1, 1),
		"You have sent 10 log rows in this minute, the limit per caller: a quarter of the setting SVC_MAX_LOG_ROWS "+
			"(40)")
	_, err = r.AppendLogRows("hostile", []api.LogRow{{Service: "s", Content: "row"}})
	mustBeBusy(t, err, "You have sent 10 log rows in this minute")
	must(t, send("node", 1, 900))
	mustBeBusy(t, send("node", 1, 900), "a quarter of the setting SVC_MAX_LOG_ROW_BYTES (4000)")
	clock.add(time.Minute)
	must(t, send("hostile", 10, 1))
}

// TestResumeIsOfTheSameCaller: a caller that knows a resume key cannot continue the push of another caller, and
// cannot use layers of templates other than those it may rest on.
func TestResumeIsOfTheSameCaller(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	req := request(idA, "v1", makeContent("disk", api.FileDisk, "a"))
	req.ResumeKey = "save-1"
	first, err := r.NegotiateRestricted(t.Context(), "node 1", req, []string{idA})
	must(t, err)
	for name, c := range map[string]struct {
		caller string
		on     []string
		same   bool
	}{
		"the same":        {"node 1", []string{idA}, true},
		"another caller":  {"key ci", []string{idA}, false},
		"all layers":      {"node 1", nil, false},
		"another's layer": {"node 1", []string{idB}, false},
	} {
		s, err := r.NegotiateRestricted(t.Context(), c.caller, req, c.on)
		must(t, err)
		if (s.Session == first.Session) != c.same {
			t.Errorf("%s: session %s, the first is %s", name, s.Session, first.Session)
		}
	}
}

// TestDamageIsKnownAtStart: names and sizes of layer files are checked when the storage is opened, before the
// scrub.
func TestDamageIsKnownAtStart(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(path string) error
		says  string
	}{
		"truncated": {func(path string) error { return os.Truncate(path, 100) }, "has 100 bytes instead of"},
		"longer":    {func(path string) error { return os.Truncate(path, 1<<20) }, "has 1048576 bytes instead of"},
		"a symlink": {func(path string) error {
			if err := os.Rename(path, path+".moved"); err != nil {
				return err
			}
			return os.Symlink(filepath.Base(path)+".moved", path)
		}, "is not a regular file"},
		"gone": {os.Remove, "is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			base, clock := t.TempDir(), newClock()
			r := open(t, base, clock)
			a := makeContent("disk", api.FileDisk, "a")
			mustPush(t, r, request(idA, "v1", a), a)
			must(t, r.Close())
			must(t, c.spoil(filepath.Join(base, layout.ImagesDir, a.root()+layout.LayerSuffix)))
			r = open(t, base, clock)
			damaged := r.Status().Damaged
			if len(damaged) != 1 || !strings.Contains(damaged[0].Problem, c.says) {
				t.Fatalf("%+v", damaged)
			}
			_, err := r.Manifest(t.Context(), VersionRef{ID: idA})
			for _, part := range []string{
				"tag v1", "of template template a is damaged", a.root(), c.says, "push it again",
			} {
				if farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), part) {
					t.Errorf("a pull says %v, without %q", err, part)
				}
			}
			mustPush(t, r, request(idA, "v2", a), a)
			if damaged := r.Status().Damaged; len(damaged) != 0 {
				t.Errorf("after the content was pushed again: %+v", damaged)
			}
		})
	}
}

// TestUnreadableTemplateIsNotUnknown: a pull of a template with damaged metadata reports the damage.
func TestUnreadableTemplateIsNotUnknown(t *testing.T) {
	base, clock := t.TempDir(), newClock()
	r := open(t, base, clock)
	a := makeContent("disk", api.FileDisk, "a")
	mustPush(t, r, request(idA, "v1", a), a)
	must(t, r.Close())
	must(t, os.WriteFile(filepath.Join(base, layout.TemplatesDir, idA, "template.json"), []byte("{"), 0o600))
	r = open(t, base, clock)
	_, err := r.Manifest(t.Context(), VersionRef{ID: idA})
	if farm.CodeOf(err) != farm.CodeRefused || !strings.Contains(err.Error(), "is damaged") ||
		!strings.Contains(err.Error(), "registry repair") {
		t.Error(err)
	}
	if _, err := r.Manifest(t.Context(), VersionRef{ID: idB}); farm.CodeOf(err) != farm.CodeNotFound {
		t.Error(err)
	}
}

// TestWhatDisagrees: a tag and a version that disagree are reported as such; an unknown tag has the text of the
// contract.
func TestWhatDisagrees(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	mustPush(t, r, request(idA, "v1"))
	mustPush(t, r, request(idA, "v2"))
	zero, one, two := 0, 1, 2
	d, err := r.TemplateDetail(idA)
	must(t, err)
	for says, ref := range map[string]VersionRef{
		"Did not find any versions with tag v1 and number 1: tag v1 is version 0": {ID: idA, Tag: "v1", Number: &one},
		"Did not find any versions with tag v9":                                   {ID: idA, Tag: "v9", Number: &one},
		"Did not find any versions with number 2":                                 {ID: idA, Number: &two},
		"Did not find any versions with content id x":                             {ID: idA, ContentID: "x"},
		"Did not find any versions with tag v1 and that content id: tag v1 has " + d.Versions[0].ContentID: {
			ID: idA, Tag: "v1", Number: &zero, ContentID: "x",
		},
	} {
		if _, err := r.Manifest(t.Context(), ref); farm.CodeOf(err) != farm.CodeNoVersion || err.Error() != says {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// TestArchIsThatOfAllVersions: setting the architecture of a template changes its versions, and later
// manifests.
func TestArchIsThatOfAllVersions(t *testing.T) {
	r := open(t, t.TempDir(), newClock())
	for _, tag := range []string{"v1", "v2"} {
		req := request(idA, tag)
		req.Arch = "amd64"
		mustPush(t, r, req)
	}
	must(t, r.SetArch(t.Context(), idA, "arm64"))
	d, err := r.TemplateDetail(idA)
	must(t, err)
	for _, v := range d.Versions {
		m, err := r.Manifest(t.Context(), VersionRef{ID: idA, Number: &v.Number})
		if v.Arch != "arm64" || err != nil || m.Arch != "arm64" {
			t.Errorf("version %d: %s, pulled as %s, %v", v.Number, v.Arch, m.Arch, err)
		}
	}
}

// TestStorageIsNotForOthers: new files of a registry are for its user and group; existing ones keep their mode.
func TestStorageIsNotForOthers(t *testing.T) {
	base := filepath.Join(t.TempDir(), "storage")
	must(t, os.MkdirAll(filepath.Join(base, layout.ImagesDir), 0o700))
	must(t, os.Chmod(base, 0o700))
	r := open(t, base, newClock())
	a := makeContent("disk", api.FileDisk, "a")
	mustPush(t, r, request(idA, "v1", a), a)
	_, err := r.AppendLogRows("", []api.LogRow{{Service: "s", Content: "row"}})
	must(t, err)
	must(t, filepath.WalkDir(base, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err == nil && st.Mode().Perm()&0o027 != 0 {
			t.Errorf("%s has the mode %v", path, st.Mode())
		}
		return err
	}))
	for _, dir := range []string{base, filepath.Join(base, layout.ImagesDir)} {
		if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, st.Mode(), err)
		}
	}
	if st, err := os.Stat(filepath.Join(base, layout.TemplatesDir)); err != nil || st.Mode().Perm()&0o050 != 0o050 {
		t.Errorf("the group cannot read: %v, %v", st.Mode(), err)
	}
}
