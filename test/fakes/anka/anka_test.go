package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
	"github.com/buildyard/buildyard/internal/hv/clitest"
)

var fake = clitest.New("anka")

func TestMain(m *testing.M) { fake.Main(m) }

const waitLimit = time.Minute // for a condition that comes true within a second on an idle machine

// host is a user's home directory with a library and knobs.
type host struct {
	*testing.T
	home, program string
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{T: t, home: t.TempDir()}
	h.program = fake.Path(t)
	t.Cleanup(func() { clitest.KillAll(t, h.home) })
	return h
}

func (h *host) eventually(what string, isTrue func() bool) {
	h.Helper()
	for end := time.Now().Add(waitLimit); !isTrue(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			h.Fatalf("%s: not within %s", what, waitLimit)
		}
	}
}

func (h *host) command(args ...string) cliproc.Command {
	return cliproc.Command{
		Path: h.program, Args: args, Env: []string{"PATH=/usr/bin:/bin", "HOME=" + h.home}, Timeout: 2 * waitLimit,
	}
}

// call runs a command and returns its outputs and exit code.
func (h *host) call(args ...string) (stdout, stderr string, code int) {
	h.Helper()
	r, err := cliproc.Run(h.Context(), h.command(args...))
	if e, failed := errors.AsType[*cliproc.Error](err); failed {
		if code = e.Code; code < 0 {
			h.Fatal(err)
		}
	}
	return string(r.Stdout), string(r.Stderr), code
}

// must runs commands that succeed, and returns the output of the last one.
func (h *host) must(commands ...string) (stdout string) {
	h.Helper()
	for _, command := range commands {
		var stderr string
		var code int
		if stdout, stderr, code = h.call(strings.Fields("-j " + command)...); code != 0 {
			h.Fatalf("anka %s: code %d: %s%s", command, code, stdout, stderr)
		}
	}
	return stdout
}

// body returns the body of the last object of a command that succeeds.
func (h *host) body(command string) (body map[string]any) {
	h.Helper()
	lines := strings.Split(strings.TrimSpace(h.must(command)), "\n")
	var answer struct{ Body map[string]any }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &answer); err != nil {
		h.Fatal(err)
	}
	return answer.Body
}

func (h *host) status(name string) any { return h.body("show " + name)["status"] }

// shell runs a script in a guest.
func (h *host) shell(name, script string) string {
	h.Helper()
	stdout, stderr, code := h.call("run", name, "/bin/sh", "-c", script)
	if code != 0 {
		h.Fatalf("%q: code %d: %s", script, code, stderr)
	}
	return stdout
}

func (h *host) knob(name, value string) {
	h.Helper()
	path := filepath.Join(h.home, "anka-knobs", name)
	err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(value+"\n"), 0o600))
	if err != nil {
		h.Fatal(err)
	}
}

var placeholder = regexp.MustCompile(`<<(.*?)>>`)

// golden compares an output with a file: a first line with its source, then the text, in which <<...>> is a regular
// expression.
func (h *host) golden(file, got string) {
	h.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		h.Fatal(err)
	}
	source, want, _ := strings.Cut(string(text), "\n")
	if !strings.HasPrefix(source, "# source: ") {
		h.Errorf("%s does not name its source", file)
	}
	pattern, rest := "", want
	for at := placeholder.FindStringSubmatchIndex(rest); at != nil; at = placeholder.FindStringSubmatchIndex(rest) {
		pattern += regexp.QuoteMeta(rest[:at[0]]) + "(" + rest[at[2]:at[3]] + ")"
		rest = rest[at[1]:]
	}
	if !regexp.MustCompile(`^` + pattern + regexp.QuoteMeta(rest) + `$`).MatchString(got) {
		h.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func TestOutputs(t *testing.T) {
	h := newHost(t)
	h.golden("list-empty.golden", h.must("list"))
	h.golden("create.golden", h.must("create a 14.5"))
	h.must("modify a cpu 4", "modify a ram 8G", "modify a port ssh 22:127.0.0.1",
		"modify a network -t nat -m 52:54:00:12:34:56", "modify a label K V", "modify a display --vnc on",
		"modify a disk -s 100G", "modify a port web 80", "modify a port -d web")
	h.golden("show.golden", h.must("show a"))
	h.golden("start.golden", h.must("start a"))
	for file, command := range map[string]string{
		"version.golden": "version", "license.golden": "license show", "list.golden": "list -r",
		"list-fields.golden": "list -f name,ip,status", "show-running.golden": "show a",
		"show-network.golden": "show a network", "config.golden": "config portfwd_base",
	} {
		h.golden(file, h.must(command))
	}
	h.must("view a -s -o " + filepath.Join(h.home, "screen.png"))
	h.golden("stop.golden", h.must("stop a"))
	h.golden("clone.golden", h.must("clone -t v1 a b"))
	h.golden("delete.golden", h.must("delete --yes b"))
	if got := h.must("list -s"); !strings.Contains(got, `"name":"a"`) || strings.Contains(got, `"name":"b"`) {
		t.Errorf("listed are %s", got)
	}
}

// TestFailures has the exit codes and texts.
func TestFailures(t *testing.T) {
	h := newHost(t)
	h.must("create a 14.5", "create on 14.5", "start on")
	for _, c := range []struct {
		code          int
		file, command string
	}{
		{codeNotFound, "not-found.golden", "show nosuch"},
		{codeNotFound, "not-found.golden", "start nosuch"},
		{codeNotFound, "not-found.golden", "stop nosuch"},
		{codeNotFound, "not-found.golden", "delete --yes nosuch"},
		{codeNotFound, "not-found.golden", "clone nosuch b"},
		{codeNameTaken, "name-taken.golden", "clone on a"},
		{codeNameTaken, "name-taken.golden", "create a 14.5"},
		{codeFailure, "running.golden", "clone on b"},
		{codeFailure, "running.golden", "modify on cpu 2"},
		{codeFailure, "shrink.golden", "modify a disk -s 1G"},
		{codeUsage, "usage.golden", "start --nonsense a"},
		{codeFailure, "not-archive.golden", "import " + h.program},
	} {
		got, _, code := h.call(strings.Fields("-j " + c.command)...)
		if code != c.code {
			t.Errorf("%q: code %d, want %d", c.command, code, c.code)
		}
		h.golden(c.file, got)
	}
	if _, stderr, code := h.call("show", "nosuch"); code != codeNotFound || stderr != "anka: nosuch: not found\n" {
		t.Errorf("without -j: %d, %q", code, stderr)
	}
}

// TestStartFailures has failures by knobs.
func TestStartFailures(t *testing.T) {
	for knob, file := range map[string]string{
		knobNoChild: "start-no-child.golden", knobLimit: "start-limit.golden", knobLicense: "start-license.golden",
	} {
		t.Run(knob, func(t *testing.T) {
			h := newHost(t)
			h.must("create a 14.5")
			h.knob(knob, "0")
			got, _, code := h.call("-j", "start", "a")
			if code != codeFailure {
				t.Errorf("code %d", code)
			}
			h.golden(file, got)
		})
	}
}
