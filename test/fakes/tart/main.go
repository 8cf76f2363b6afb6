package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// exitError ends the program with a code and a text on stderr.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

func fail(code int, format string, args ...any) error {
	return &exitError{code, fmt.Sprintf(format, args...)}
}

// verb is one command of the program.
type verb struct {
	options  optionTable
	operands int  // how many it needs; -1 = one or more
	rest     bool // what follows the operands is passed on, with its options
	keepsTmp bool // the command does not clean tmp/
	run      func(context.Context, *call) error
}

var verbs = map[string]verb{
	"run":     {options: runOptions, operands: 1, run: runVM},
	"stop":    {options: optionTable{"timeout": takesValue, "t": takesValue}, operands: 1, run: stopVM},
	"suspend": {operands: 1, run: suspendVM},
	"exec":    {options: optionTable{"i": noValue, "t": noValue}, operands: 1, rest: true, run: execInVM},
	"ip":      {options: optionTable{"wait": takesValue, "resolver": takesValue}, operands: 1, run: showAddress},
	"list": {
		options: optionTable{"source": takesValue, "format": takesValue, "quiet": noValue, "q": noValue}, run: listVMs,
	},
	"get":     {options: optionTable{"format": takesValue}, operands: 1, run: showVM},
	"clone":   {options: cloneOptions, operands: 2, keepsTmp: true, run: cloneVM},
	"create":  {options: createOptions, operands: 1, run: createVM},
	"set":     {options: setOptions, operands: 1, run: setVM},
	"delete":  {operands: -1, run: deleteVMs},
	"rename":  {operands: 2, run: renameVM},
	guestVerb: {operands: 1, keepsTmp: true, run: serveGuest},
}

func main() { os.Exit(program(context.Background(), os.Args)) }

// program runs the command line of tart, or of a program in the guest's bin directory, and returns the exit code.
func program(ctx context.Context, args []string) int {
	if code, isShim := fakeguest.RunShim(ctx, args); isShim {
		return code
	}
	err := tart(ctx, args[1:])
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[*exitError](err)
	if !ok {
		e = &exitError{1, "Error: " + err.Error()}
	}
	if e.text != "" {
		fmt.Fprintln(os.Stderr, e.text)
	}
	return e.code
}

func tart(ctx context.Context, args []string) error {
	home, err := openHome()
	if err != nil {
		return err
	}
	if slices.Contains(args[:min(1, len(args))], "--version") {
		fmt.Println(home.knobs.Text("", knobVersion, "2.35.0"))
		return nil
	}
	if len(args) == 0 {
		return fail(64, "Error: Missing expected argument '<subcommand>'\nUsage: tart <subcommand>")
	}
	v, found := verbs[args[0]]
	if !found {
		return fail(64, "Error: Unexpected argument '%s'\nUsage: tart <subcommand>\n"+
			"  See 'tart --help' for more information.", args[0])
	}
	c, err := parseCall(home, args[0], v, args[1:])
	if err != nil {
		return err
	}
	if slices.Contains(home.knobs.Words(c.name(), knobHang), args[0]) {
		fakeguest.Pause(ctx, 1000*time.Hour) // only a signal ends the program
	}
	if !v.keepsTmp {
		home.cleanTmp()
	}
	return v.run(ctx, c)
}
