package central

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/api"
)

// victimOf is the variable whose value makes this program write rows into a directory until it is
// killed.
const victimOf = "CENTRAL_LOGS_OF_A_VICTIM"

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimOf); dir != "" {
		err := writeForEver(dir, os.Args[len(os.Args)-1])
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver writes rows and events concurrently, and prints each one after it was written.
func writeForEver(dir, round string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	l, err := Open(Options{Root: root})
	if err != nil {
		return err
	}
	failed := make(chan error)
	write := func(label string, once func(text string) error) {
		for i := 0; ; i++ {
			text := fmt.Sprintf("%s-%s-%d.", round, label, i)
			if err := once(text); err != nil {
				failed <- err
				return
			}
			_, _ = os.Stdout.WriteString(text + "\n")
		}
	}
	for w := range 3 {
		label := fmt.Sprint("w", w)
		go write(label, func(text string) error {
			rows := []api.LogRow{row("node", fmt.Sprint("m", w%2), text), row("other", "m",
				strings.Repeat("much ", 100*w)+text)}
			taken, err := l.Append(rows)
			if err == nil && taken.Dropped > 0 {
				err = fmt.Errorf("%+v", taken)
			}
			return err
		})
	}
	go write("e", func(text string) error { return l.AppendEvents([][]byte{fmt.Appendf(nil, `{"name":%q}`, text)}) })
	return <-failed
}

// kill runs a victim until it has printed a number of lines, kills it, and returns all printed lines.
func kill(t *testing.T, dir, round string, after int) (written []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], round)
	cmd.Env = append(os.Environ(), victimOf+"="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if written = append(written, lines.Text()); len(written) == after {
			_ = cmd.Process.Kill()
		}
	}
	if err := cmd.Wait(); err == nil || len(written) < after {
		t.Fatalf("the victim ended with %v after %d", err, len(written))
	}
	return written
}

// TestKilledWhileItWrites: what was acknowledged is there once and whole, and what a kill
// interrupted is a separate line.
func TestKilledWhileItWrites(t *testing.T) {
	dir := t.TempDir()
	var written []string
	for i := range 3 {
		written = append(written, kill(t, dir, fmt.Sprint("r", i), 200+137*i)...)
	}
	l := open(t, dir, Options{})
	for _, machine := range []string{"m0", "m1"} {
		add(t, l, row("node", machine, "the last."))
	}
	all, rowForm := "", regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z m[01]? 10\.0\.0\.1 .*\.$`)
	torn := 0
	for _, name := range globbed(t, dir) {
		for line := range strings.Lines(content(t, dir, name)) {
			all += line
			switch line = strings.TrimSuffix(line, "\n"); {
			case strings.HasPrefix(name, "event/"):
				if !strings.HasPrefix(line, eventHeader) && !json.Valid([]byte(line)) {
					torn++
				}
			case !rowForm.MatchString(line):
				torn++
			}
		}
	}
	if torn > 3*3 { // at most one per kill and file
		t.Errorf("%d rows are torn", torn)
	}
	for _, text := range written {
		want := 2
		if strings.Contains(text, "-e-") {
			want = 1
		}
		if n := strings.Count(all, text); n != want {
			t.Errorf("%s was written and is there %d times, not %d", text, n, want)
		}
	}
	if !strings.HasSuffix(content(t, dir, filepath.Join("node", names(t, l, "node")[1])), " the last.\n") {
		t.Error("it does not go on in a row of its own")
	}
}

// globbed returns the log files in a directory.
func globbed(t *testing.T, dir string) (out []string) {
	t.Helper()
	all, err := filepath.Glob(dir + "/*/*.log")
	if err != nil || len(all) < 4 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, name := range all {
		rel, _ := filepath.Rel(dir, name)
		out = append(out, rel)
	}
	return out
}
