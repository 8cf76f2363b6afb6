// Package servicetest has programs that behave like launchctl and systemctl, for tests of the service of the node
// agent. They keep what they know as files of the directory StateVariable and run no service.
//
// They know the commands that the package service uses. Texts and exit codes are those of the real programs, as far
// as they are documented; they were not compared with a Mac.
//
// Invariant: a command that is refused changes nothing.
package servicetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// StateVariable is the environment variable with the directory of a fake's state. Each call is appended to its file
// "calls".
const StateVariable = "FAKE_SERVICES"

// PID is the process ID of services that run.
const PID = 612

// failure is a message and an exit code.
type failure struct {
	code int
	text string
}

// state is the state of a fake, as files.
type state struct{ dir string }

func openState(program string, args []string) state {
	s := state{os.Getenv(StateVariable)}
	if s.dir == "" {
		fmt.Fprintln(os.Stderr, StateVariable+" is not set")
		os.Exit(99)
	}
	calls, err := os.OpenFile(s.path("calls"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	check(err)
	_, err = fmt.Fprintln(calls, program, strings.Join(args, " "))
	check(err)
	check(calls.Close())
	return s
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
}

func (s state) path(name string) string { return filepath.Join(s.dir, name) }

// get returns the content of a file of the state, and whether it exists.
func (s state) get(name string) (string, bool) {
	text, err := os.ReadFile(s.path(name))
	return string(text), err == nil
}

func (s state) has(name string) bool {
	_, found := s.get(name)
	return found
}

func (s state) set(name, text string) { check(os.WriteFile(s.path(name), []byte(text), 0o644)) }

func (s state) remove(names ...string) {
	for _, name := range names {
		_ = os.Remove(s.path(name))
	}
}

// command is a command of a fake: it prints its result, or returns why it fails.
type command func(s state, args []string) *failure

// run runs the command that the arguments of this process name and exits.
func run(program string, commands map[string]command) {
	args := os.Args[1:]
	s := openState(program, args)
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprintln(os.Stderr, "the fake has no such command:", args)
		os.Exit(99)
	}
	if f := commands[args[0]](s, slices.Clone(args[1:])); f != nil {
		fmt.Fprintln(os.Stderr, f.text)
		os.Exit(f.code)
	}
	os.Exit(0)
}
