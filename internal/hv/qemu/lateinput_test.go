//go:build linux

package qemu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/internal/hv"
)

// fakeGuest is a guest agent whose programs do not run: it answers as the test says, and records what was called.
type fakeGuest struct {
	t       *testing.T
	answers map[string]string // of a command, instead of success; "": the connection breaks

	mu    sync.Mutex
	calls []string // the commands; guest-exec with the kind of its program
	input []byte   // written to the pipe
}

const (
	answerRefused  = `{"error": {"class": "GenericError", "desc": "no"}}`
	answerDisabled = `{"error": {"class": "CommandNotFound", "desc": "Command guest-file-open has been disabled"}}`
	answerEnded    = `{"return": {"exited": true, "exitcode": 0}}`
)

// serve answers one connection.
func (f *fakeGuest) serve(_ int, c net.Conn, r *bufio.Reader) {
	if !answerSync(c, r, "") {
		return
	}
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			Execute   string
			Arguments struct {
				Arg    []string
				PID    int
				Buffer []byte `json:"buf-b64"`
			}
		}
		if err := json.Unmarshal(line, &m); err != nil {
			f.t.Error(err)
			return
		}
		answer := f.answer(m.Execute, m.Arguments.Arg, m.Arguments.PID, m.Arguments.Buffer)
		if answer == "" {
			return
		}
		say(c, answer+"\n")
	}
}

func (f *fakeGuest) answer(command string, args []string, pid int, input []byte) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	call, helper := command, 2
	if command == "guest-exec" {
		switch text := args[1]; {
		case strings.Contains(text, "kill -9"):
			call = "kill"
		case strings.Contains(text, "Ends the input"):
			call = "release"
		default:
			call, helper = "start", 1
		}
	}
	if command != "guest-exec-status" || pid == 1 {
		f.calls = append(f.calls, call)
	}
	if answer, known := f.answers[call]; known && (command != "guest-exec-status" || pid == 1) {
		return answer
	}
	switch command {
	case "guest-exec":
		b, _ := json.Marshal(map[string]any{"return": map[string]int{"pid": helper}})
		return string(b)
	case "guest-exec-status":
		if pid == 1 && len(f.input) == 0 {
			return `{"return": {"exited": false}}`
		}
		return answerEnded
	case "guest-file-open":
		return `{"return": 7}`
	case "guest-file-write":
		f.input = input
		b, _ := json.Marshal(map[string]any{"return": map[string]int{"count": len(input)}})
		return string(b)
	}
	return `{"return": {}}`
}

// TestLateInput: a command whose input comes later gets it once. ErrNoInput, after which a caller runs it again, is
// returned only where nothing was written; after a write that is not confirmed, the command is killed.
func TestLateInput(t *testing.T) {
	for name, c := range map[string]struct {
		answers map[string]string
		script  string
		refuses error // of the caller, instead of a script
		want    error
		fails   bool
		called  []string
		never   []string
	}{
		"success": {script: "echo", called: []string{"guest-file-flush", "guest-file-close"}, never: []string{"kill"}},
		"no script": {
			answers: map[string]string{"guest-exec-status": answerEnded}, called: []string{"guest-file-close"},
			never: []string{"guest-file-write", "kill"},
		},
		"caller without a script": {
			refuses: context.Canceled, want: context.Canceled, called: []string{"guest-file-close"},
			never: []string{"guest-file-write", "kill"},
		},
		"program ended": {
			answers: map[string]string{"guest-exec-status": answerEnded}, script: "echo", want: hv.ErrNoInput,
			called: []string{"guest-file-close"}, never: []string{"guest-file-write", "kill"},
		},
		"program unknown": {
			answers: map[string]string{"guest-exec-status": answerRefused}, script: "echo", want: hv.ErrNoInput,
			never: []string{"guest-file-write", "kill"},
		},
		"long script": {
			script: strings.Repeat("#", maxLateStdin+1), want: hv.ErrNoInput,
			never: []string{"guest-file-write", "kill"},
		},
		"write lost": {
			answers: map[string]string{"guest-file-write": ""}, script: "echo", fails: true, called: []string{"kill"},
		},
		"write refused": {
			answers: map[string]string{"guest-file-write": answerRefused}, script: "echo", fails: true,
			called: []string{"kill"},
		},
		"written in part": {
			answers: map[string]string{"guest-file-write": `{"return": {"count": 1}}`}, script: "echo", fails: true,
			called: []string{"kill"},
		},
		"flush refused": {
			answers: map[string]string{"guest-file-flush": answerRefused}, script: "echo", fails: true,
			called: []string{"kill"},
		},
		"close lost": {
			answers: map[string]string{"guest-file-close": ""}, script: "echo", fails: true, called: []string{"kill"},
		},
		"open disabled": {
			answers: map[string]string{"guest-file-open": answerDisabled}, script: "echo", fails: true,
			called: []string{"release"}, never: []string{"guest-file-write"},
		},
		"open denied": {
			answers: map[string]string{"guest-file-open": answerRefused}, script: "echo", fails: true,
			called: []string{"release"}, never: []string{"guest-file-write"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeGuest{t: t, answers: c.answers}
			r := &run{
				guestAgent: agentOf(t, f.serve), exited: make(chan struct{}), agentOpened: make(chan struct{}),
				machine: &machine{id: "vm", driver: &Driver{log: slog.New(slog.DiscardHandler)}},
			}
			close(r.agentOpened)
			cmd := hv.Command{Path: "/bin/sh", AwaitInput: func(context.Context) (hv.Input, error) {
				return hv.Input{Stdin: []byte(c.script)}, c.refuses
			}}
			got, err := r.exec(t.Context(), cmd)
			if c.want == nil && !c.fails && (err != nil || got.Code != 0) || c.want != nil && !errors.Is(err, c.want) ||
				c.fails && (err == nil || errors.Is(err, hv.ErrNoInput)) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v, %v", got, err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, call := range c.called {
				if !slices.Contains(f.calls, call) {
					t.Errorf("no %s among %q", call, f.calls)
				}
			}
			for _, call := range c.never {
				if slices.Contains(f.calls, call) {
					t.Errorf("%s is among %q", call, f.calls)
				}
			}
			if c.want == nil && !c.fails && string(f.input) != c.script {
				t.Errorf("the program got %q", f.input)
			}
		})
	}
}
