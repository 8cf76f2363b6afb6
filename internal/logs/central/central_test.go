package central

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// clock is a clock that tests set.
type clock struct{ at atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.at.Store(time.Date(2026, 3, 4, 5, 6, 7, 8e6, time.UTC).UnixNano())
	return c
}

func (c *clock) Now() time.Time          { return time.Unix(0, c.at.Load()) }
func (c *clock) advance(d time.Duration) { c.at.Add(int64(d)) }

// open opens logs in a directory.
func open(t testing.TB, dir string, o Options) *Logs {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	o.Root = root
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func row(service, machine, content string) api.LogRow {
	return api.LogRow{MachineName: machine, Service: service, Host: "10.0.0.1", Content: content}
}

// add appends rows that must all be written.
func add(t testing.TB, l *Logs, rows ...api.LogRow) {
	t.Helper()
	taken, err := l.Append(rows)
	if err != nil || taken.Rows != len(rows) || taken.Dropped != 0 {
		t.Fatalf("%d rows: %+v, %v", len(rows), taken, err)
	}
}

func content(t testing.TB, dir, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func names(t testing.TB, l *Logs, service string) []string {
	t.Helper()
	files, err := l.Files(service)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		out = append(out, f.Name)
	}
	return out
}

func TestRows(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{Now: newClock().Now})
	const at = "2026-03-04T05:06:07.008Z "
	for _, c := range []struct {
		row        api.LogRow
		file, line string
	}{
		{row("node", "mac-1", "plain"), "mac-1", "mac-1 10.0.0.1 plain"},
		{row("node", "mac-1", "ends\r\n\n"), "mac-1", "mac-1 10.0.0.1 ends"},
		{row("node", "mac-1", "two\nlines\tand \\n"), "mac-1", `mac-1 10.0.0.1 two\nlines` + "\t" + `and \n`},
		{row("node", "mac-1", "\x1b[31mred\x00\x7f\u009b"), "mac-1", `mac-1 10.0.0.1 \x1b[31mred\x00\x7f\x9b`},
		{
			row("node", "mac-1", "over\u2028ein \u202eßЖ\U0001F600 \xff"), "mac-1",
			`mac-1 10.0.0.1 over\u2028ein \u202eßЖ` + "\U0001F600 \uFFFD",
		},
		{api.LogRow{Service: "node"}, "unknown", "unknown - "},
		{row("node", "../../etc/passwd", "x"), "_._.._etc_passwd", "_._.._etc_passwd 10.0.0.1 x"},
		{row("node", "-rf ~", "x"), "_rf__", "_rf__ 10.0.0.1 x"},
		{row("node", strings.Repeat("ü", 100), "x"), strings.Repeat("_", 32), strings.Repeat("_", 32) + " 10.0.0.1 x"},
		{api.LogRow{Service: "node", MachineName: "m", Host: "a b\nc", Content: "x"}, "m", `m a_b\nc x`},
		{api.LogRow{Service: "Some.Other-service_2", MachineName: "m", Content: "x"}, "m", `m - x`},
		{
			api.LogRow{Service: "Some Other Service", MachineName: "i-0a1b | Mac", Content: "x"},
			"i-0a1b___Mac",
			`i-0a1b___Mac - x`,
		},
	} {
		add(t, l, c.row)
		text := content(t, dir, c.row.Service+"/"+c.file+".2026-03-04.log")
		if !strings.HasSuffix(text, at+c.line+"\n") {
			t.Errorf("%+v: %q", c.row, text)
		}
	}
	add(t, l, row("node", "long", strings.Repeat("x", maxContentBytes+1)))
	if text := content(t, dir, "node/long.2026-03-04.log"); !strings.HasSuffix(text, "xx ... [cut]\n") ||
		len(text) > maxContentBytes+100 {
		t.Errorf("a long row has %d bytes", len(text))
	}
}

func TestHostileServices(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	for _, name := range []string{
		"", ".", "..", "../x", "a/b", "/etc", `a\b`, ".hidden", "-x", "_x", " a", "a ", "a\tb", "a\x00", "ä", "a\n",
		strings.Repeat("a", 65), "event", "EVENT",
	} {
		taken, err := l.Append([]api.LogRow{row("ok", "m", "x"), row(name, "m", "x")})
		if farm.CodeOf(err) != farm.CodeInvalid || !strings.HasPrefix(err.Error(), "rows[1].service: ") ||
			taken.Rows != 0 {
			t.Errorf("%q: %+v, %v", name, taken, err)
		}
		if _, err := l.Append([]api.LogRow{row(name, "m", "x")}); err == nil ||
			!strings.HasPrefix(err.Error(), "service: ") {
			t.Errorf("%q: %v", name, err)
		}
		if name == "event" || name == "EVENT" {
			continue
		}
		if _, _, err := l.Follow(name, 0); farm.CodeOf(err) != farm.CodeInvalid {
			t.Errorf("a stream of %q: %v", name, err)
		}
		for _, err := range []error{second(l.Files(name)), second(l.View(name, "")), second(l.Archive(name))} {
			if farm.CodeOf(err) != farm.CodeNotFound {
				t.Errorf("look at %q: %v", name, err)
			}
		}
	}
	if got, _ := filepath.Glob(dir + "/*"); len(got) != 0 {
		t.Errorf("there is %v", got)
	}
	add(t, l, row("ok", "m", "x"))
	for _, name := range []string{"../ok/m", "/etc/passwd", "nothing.log", "."} {
		if _, err := l.View("ok", name); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("view of %q: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestSymlinksLeadNowhere: a directory or file that is a symbolic link out of the logs is neither
// written nor read.
func TestSymlinksLeadNowhere(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Symlink(outside, dir+"/linked"), os.Mkdir(dir+"/node", 0o755),
		os.Symlink(outside+"/secret.log", dir+"/node/m.2026-03-04.log"),
		os.WriteFile(outside+"/secret.log", []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir, Options{Now: newClock().Now})
	for _, service := range []string{"linked", "node"} {
		if taken, err := l.Append([]api.LogRow{row(service, "m", "x")}); err != nil || taken.Dropped != 1 {
			t.Errorf("%s: %+v, %v", service, taken, err)
		}
		if _, err := l.View(service, ""); farm.CodeOf(err) != farm.CodeNotFound {
			t.Errorf("%s is seen: %v", service, err)
		}
	}
	if got := content(t, outside, "secret.log"); got != "secret\n" {
		t.Errorf("what is outside became %q", got)
	}
}

// TestAFileADay: also after restarts, which resume the file of the day.
func TestAFileADay(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	for range 2 {
		l := open(t, dir, Options{Now: c.Now})
		add(t, l, row("node", "a", "x"), row("node", "b", "x"))
		c.advance(24 * time.Hour)
		add(t, l, row("node", "a", "x"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := open(t, dir, Options{Now: c.Now})
	want := "a.2026-03-04.log b.2026-03-04.log a.2026-03-05.log b.2026-03-05.log a.2026-03-06.log"
	got := names(t, l, "node")
	if len(got) != 5 || strings.Count(content(t, dir, "node/a.2026-03-05.log"), "\n") != 2 {
		t.Errorf("files are %v, not %s", got, want)
	}
	files, _ := l.Files("node")
	for _, f := range files {
		if f.MachineName != f.Name[:1] || f.Size == 0 || f.Service != "node" {
			t.Errorf("%+v", f)
		}
	}
}

func TestPartsAndOldestFirst(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	l := open(t, dir, Options{Now: c.Now, MaxBytes: 80 << 10}) // parts of 10 KiB
	for i := range 200 {
		c.advance(time.Second)
		add(t, l, row("node", "a.b", strings.Repeat("x", 900)), row("node", "c", fmt.Sprint(i)))
	}
	s := l.Stats()
	if s.Bytes > 80<<10 || s.Bytes < 60<<10 || s.Rows != 400 {
		t.Errorf("stats are %+v", s)
	}
	got := names(t, l, "node")
	if len(got) < 7 || got[0] == "a.b.2026-03-04.log" || !strings.HasPrefix(got[0], "a.b.2026-03-04.") {
		t.Errorf("files are %v", got)
	}
	var sum int64
	files, _ := l.Files("node")
	for _, f := range files {
		info, err := os.Stat(filepath.Join(dir, "node", f.Name))
		if err != nil || info.Size() != f.Size || f.Size > 10<<10 && strings.HasPrefix(f.Name, "a") ||
			f.MachineName != "a.b" && f.MachineName != "c" {
			t.Errorf("%+v: %v", f, err)
		}
		sum += f.Size
	}
	if sum != s.Bytes || s.Files != len(files) {
		t.Errorf("%d bytes in %d files, %+v", sum, len(files), s)
	}
	// a smaller limit applies from the start on
	_ = l.Close()
	if again := open(t, dir, Options{Now: c.Now, MaxBytes: 30 << 10}).Stats(); again.Bytes > 30<<10 ||
		again.Files == 0 {
		t.Errorf("after a restart with less: %+v", again)
	}
}

func TestAge(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	l := open(t, dir, Options{Now: c.Now, Retention: 48 * time.Hour})
	add(t, l, row("old", "m", "x"), row("node", "m", "x"))
	c.advance(40 * time.Hour)
	add(t, l, row("node", "m", "x"))
	l.Prune()
	if len(names(t, l, "node")) != 2 {
		t.Error("a young log went")
	}
	c.advance(9 * time.Hour)
	l.Prune()
	if got := names(t, l, "node"); len(got) != 1 || got[0] != "m.2026-03-05.log" {
		t.Errorf("files are %v", got)
	}
	if _, err := l.Files("old"); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("a service without logs: %v", err)
	}
	if _, err := os.Stat(dir + "/old"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
	c.advance(47 * time.Hour)
	add(t, l, row("old", "m", "again")) // rows suffice: not every directory of logs has a process that calls Tidy
	if _, err := l.Files("node"); farm.CodeOf(err) != farm.CodeNotFound {
		t.Errorf("what is old by now: %v", err)
	}
	if got := content(t, dir, "old/m.2026-03-08.log"); strings.Count(got, "\n") != 1 {
		t.Errorf("it goes on with %q", got)
	}
}

func TestBoundOfServices(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	var rows []api.LogRow
	for i := range maxServices + 1 {
		rows = append(rows, row(fmt.Sprintf("s%d", i), "m", "x"))
	}
	if _, err := l.Append(rows); farm.CodeOf(err) != farm.CodeRefused || l.Stats().Rows != 0 {
		t.Errorf("too many at once: %v", err)
	}
	add(t, l, rows[:maxServices]...)
	if _, err := l.Append(rows[maxServices:]); farm.CodeOf(err) != farm.CodeRefused {
		t.Errorf("one more: %v", err)
	}
	add(t, l, rows[7])
	for name := range builtinServices {
		add(t, l, row(name, "m", "there is always room for those of the cloud"))
	}
	if n := len(l.openFiles); n != maxOpenFiles {
		t.Errorf("%d files are open", n)
	}
	if n := len(l.Services()); n != maxServices+len(builtinServices) {
		t.Errorf("%d services", n)
	}
}

func TestBoundOfFiles(t *testing.T) {
	l := open(t, t.TempDir(), Options{Now: newClock().Now})
	l.maxFileCount = 100
	add(t, l, row("node", "old", "x"))
	for i := range l.maxFileCount {
		add(t, l, row("s", fmt.Sprint("m", i), "x"))
	}
	if s := l.Stats(); s.Files != l.maxFileCount || len(names(t, l, "node")) != 1 ||
		slices.Contains(names(t, l, "s"), "m0.2026-03-04.log") {
		t.Errorf("%+v", s)
	}
}

// TestAFloodTakesItsOwnSpace: neither a machine nor a service with endless rows causes the removal
// of the rows of others, least of all of events; and its newest rows remain.
func TestAFloodTakesItsOwnSpace(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	l := open(t, dir, Options{Now: c.Now, MaxBytes: 400 << 10})
	quiet := []api.LogRow{row("controller", "c", "quiet"), row("node", "a", "quiet"), row("other", "a", "quiet")}
	add(t, l, quiet...)
	if err := l.AppendEvents([][]byte{[]byte(`{"name":"StartVM"}`)}); err != nil {
		t.Fatal(err)
	}
	for i := range 1500 {
		c.advance(time.Minute) // a day and an hour
		add(t, l, row("node", "b", fmt.Sprint(i, strings.Repeat(" flood", 200))))
	}
	for i := range 300 {
		add(t, l, row("evil", fmt.Sprint(i), strings.Repeat("flood", 1000)))
	}
	if s := l.Stats(); s.Bytes > 400<<10 || s.Bytes < 300<<10 {
		t.Errorf("%+v", s)
	}
	for _, r := range quiet {
		if text := content(t, dir, r.Service+"/"+r.MachineName+".2026-03-04.log"); !strings.Contains(text, "quiet") {
			t.Errorf("the log of %s is %q", r.Service, text)
		}
	}
	if text := content(t, dir, "event/event.log"); !strings.Contains(text, "StartVM") {
		t.Errorf("the events are %q", text)
	}
	if v, err := l.View("node", ""); err != nil {
		t.Error(err)
	} else if text, err := v.Tail(1); !strings.Contains(string(text), " 1499 flood") || v.Close() != nil {
		t.Errorf("%.80s, %v", text, err)
	}
}

func TestTornRow(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	if err := errors.Join(os.Mkdir(dir+"/node", 0o755),
		os.WriteFile(dir+"/node/m.2026-03-04.log", []byte("whole\nhal"), 0o644),
		os.WriteFile(dir+"/node/notes.txt", []byte("not ours"), 0o644),
		os.Mkdir(dir+"/node/dir.log", 0o755)); err != nil {
		t.Fatal(err)
	}
	l := open(t, dir, Options{Now: c.Now})
	add(t, l, row("node", "m", "x"))
	if got := content(t, dir, "node/m.2026-03-04.log"); !strings.HasPrefix(got, "whole\nhal\n2026-") ||
		int64(len(got)) != l.Stats().Bytes {
		t.Errorf("%q, %+v", got, l.Stats())
	}
	if got := names(t, l, "node"); len(got) != 1 {
		t.Errorf("files are %v", got)
	}
}

// TestNoSpace: rows are dropped and counted, and reported in a row once there is free space; events
// are refused.
func TestNoSpace(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	var full atomic.Bool
	var free atomic.Int64
	free.Store(1 << 30)
	l := open(t, dir,
		Options{Now: c.Now, Full: full.Load, Free: func() (int64, int64, error) { return free.Load(), 100 << 30, nil }})
	add(t, l, row("node", "m", "first"))
	full.Store(true)
	for range 2 {
		if taken, err := l.Append([]api.LogRow{row("node", "m", "a"), row("node", "n", "b")}); err != nil ||
			taken.Dropped != 2 || taken.Rows != 0 {
			t.Errorf("%+v, %v", taken, err)
		}
	}
	if err := l.AppendEvents([][]byte{[]byte(`{}`)}); farm.CodeOf(err) != farm.CodeUnavailable {
		t.Errorf("events: %v", err)
	}
	full.Store(false)
	free.Store(minFreeBytes - 1)
	add(t, l, row("other", "m", "the look is young"))
	c.advance(spaceCheckInterval)
	if taken, _ := l.Append([]api.LogRow{row("node", "m", "c")}); taken.Dropped != 1 {
		t.Errorf("%+v", taken)
	}
	free.Store(minFreeBytes)
	c.advance(spaceCheckInterval)
	add(t, l, row("node", "m", "last"))
	lines := strings.Split(content(t, dir, "node/m.2026-03-04.log"), "\n")
	if len(lines) != 4 || !strings.HasSuffix(lines[1], " 5 rows are missing here: they could not be written") ||
		!strings.HasSuffix(lines[2], "last") {
		t.Errorf("%q", lines)
	}
	if s := l.Stats(); s.Dropped != 5 || s.Rows != 3 {
		t.Errorf("%+v", s)
	}
}

func TestEvents(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	l := open(t, dir, Options{Now: c.Now})
	if err := l.AppendEvents([][]byte{
		[]byte(`{"type":"apiAction","name":"StartVM","a":{"z":1,"b":null},"time":1601991691,"u":"<&>"}`),
		[]byte(` {"b":1,"a":1e3} `),
	}); err != nil {
		t.Fatal(err)
	}
	want := "Log file created at: 2026/03/04 05:06:07\n" +
		`{"a":{"b":null,"z":1},"name":"StartVM","time":1601991691,"type":"apiAction","u":"<&>"}` + "\n" +
		`{"a":1e3,"b":1}` + "\n"
	if got := content(t, dir, "event/event.log"); got != want {
		t.Errorf("%s", got)
	}
	for _, bad := range []string{`[]`, `1`, `null`, `{`, ``, `{"a":"` + strings.Repeat("x", maxEventBytes) + `"}`} {
		if err := l.AppendEvents([][]byte{[]byte(`{}`), []byte(bad)}); farm.CodeOf(err) != farm.CodeInvalid ||
			!strings.HasPrefix(err.Error(), "events[1]: ") {
			t.Errorf("%.20s: %v", bad, err)
		}
	}
	// a restart resumes the same file, the next day begins another one
	_ = l.Close()
	l = open(t, dir, Options{Now: c.Now})
	c.advance(time.Hour)
	if err := l.AppendEvents([][]byte{[]byte(`{"c":1}`)}); err != nil {
		t.Fatal(err)
	}
	if got := content(t, dir, "event/event.log"); got != want+"{\"c\":1}\n" {
		t.Errorf("%s", got)
	}
	c.advance(24 * time.Hour)
	if err := l.AppendEvents([][]byte{[]byte(`{"d":1}`)}); err != nil {
		t.Fatal(err)
	}
	if got := content(t, dir, "event/event.log"); got != "Log file created at: 2026/03/05 06:06:07\n{\"d\":1}\n" {
		t.Errorf("%s", got)
	}
	if got := strings.Join(names(t, l, "event"), " "); got != "event.2026-03-05T060607.008.log event.log" {
		t.Errorf("files are %s", got)
	}
	past, s, err := l.Follow("event", 10)
	if err != nil || string(past) != "{\"d\":1}\n" {
		t.Errorf("%q, %v", past, err)
	}
	s.Close()
}

func TestEventLogRotates(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	l := open(t, dir, Options{Now: c.Now, MaxBytes: 8 << 10})
	for i := range 100 {
		if err := l.AppendEvents([][]byte{
			fmt.Appendf(nil, `{"n":%d,"text":"%s"}`, i, strings.Repeat("x", 80)),
		}); err != nil {
			t.Fatal(err)
		}
	}
	all := names(t, l, "event")
	if s := l.Stats(); len(all) < 6 || s.Bytes > 8<<10 {
		t.Errorf("%v, %+v", all, s)
	}
	for _, name := range all {
		if text := content(t, dir, "event/"+name); !strings.HasPrefix(text, eventHeader) || len(text) > 1<<10 ||
			!strings.HasSuffix(text, "}\n") {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func TestViews(t *testing.T) {
	l := open(t, t.TempDir(), Options{})
	for i := range 5000 {
		add(t, l, row("node", "m", fmt.Sprint("row ", i, strings.Repeat("-", 40))))
	}
	v, err := l.View("node", "")
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	add(t, l, row("node", "m", "later"))
	for _, n := range []int{1, 10, 3000, 5000, MaxTailLines} {
		text, err := v.Tail(n)
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		if err != nil || len(lines) != min(n, 5000) || !strings.Contains(lines[len(lines)-1], "row 4999-") ||
			!strings.Contains(lines[0], fmt.Sprint("row ", 5000-len(lines), "-")) {
			t.Errorf("%d: %d lines, %v", n, len(lines), err)
		}
	}
	if raw, err := io.ReadAll(v.Content()); err != nil || int64(len(raw)) != v.Size ||
		bytes.Contains(raw, []byte("later")) {
		t.Errorf("%d bytes of %d, %v", len(raw), v.Size, err)
	}
	if text, err := v.tail(100, 1000); err != nil || len(text) > 1000 || len(text) < 800 ||
		!bytes.HasPrefix(text, []byte("20")) {
		t.Errorf("a bounded tail: %q, %v", text, err)
	}
}

// TestConcurrentWriters writes, reads and tidies concurrently; the rows of every writer stay in order.
func TestConcurrentWriters(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, Options{})
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			for i := range 200 {
				add(t, l, row("node", fmt.Sprint("m", w%2), fmt.Sprintf("%d %d", w, i)))
			}
		})
	}
	work.Go(func() {
		for range 50 {
			l.Prune()
			l.Services()
			if _, s, err := l.Follow("node", 5); err == nil {
				s.Close()
			}
			if a, err := l.Archive("node"); err == nil {
				_ = errors.Join(a.Write(io.Discard), a.Close())
			}
		}
	})
	work.Wait()
	next := map[string]int{}
	for _, name := range names(t, l, "node") {
		for line := range strings.Lines(content(t, dir, "node/"+name)) {
			words := strings.Fields(line)
			if words[4] != fmt.Sprint(next[words[3]]) {
				t.Fatalf("writer %s: %s", words[3], line)
			}
			next[words[3]]++
		}
	}
	if fmt.Sprint(next) != "map[0:200 1:200 2:200 3:200]" {
		t.Errorf("%v", next)
	}
}

func FuzzRows(f *testing.F) {
	f.Add("node", "m", "h", "x\ny")
	f.Add("..", "../..", " ", "\xff\u2028")
	dir := f.TempDir()
	l := open(f, dir, Options{MaxBytes: 1 << 20})
	f.Fuzz(func(t *testing.T, service, machine, host, text string) {
		_, s, err := l.Follow(service, 0)
		if err != nil {
			return
		}
		defer s.Close()
		taken, err := l.Append([]api.LogRow{{Service: service, MachineName: machine, Host: host, Content: text}})
		if err != nil {
			return
		}
		if taken.Rows != 1 {
			t.Fatalf("%+v", taken)
		}
		line, _ := s.Next(t.Context())
		if bytes.Count(line, []byte("\n")) != 1 || bytes.ContainsAny(line, "\r\x00\x1b") ||
			len(strings.SplitN(string(line), " ", 4)) != 4 {
			t.Fatalf("%q", line)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	line := `{"time":"2026-03-04T05:06:07Z","level":"INFO","msg":"instance recovered","service":"node","instance":"aaaaaaaa-0000-4000-8000-000000000001"}`
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			l := open(b, b.TempDir(), Options{MaxBytes: 256 << 20})
			rows := make([]api.LogRow, batch)
			for i := range rows {
				rows[i] = row("node", "m", line)
			}
			b.ReportAllocs()
			for b.Loop() {
				if taken, err := l.Append(rows); err != nil || taken.Dropped > 0 {
					b.Fatal(taken, err)
				}
			}
			b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
