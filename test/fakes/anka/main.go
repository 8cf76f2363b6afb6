package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

// Exit codes of anka that drivers read.
const (
	codeFailure      = 1
	codeNotFound     = 3
	codeNameTaken    = 18
	codeUsage        = 2
	codeDisconnected = 125 // of run
)

// exceptions are the types of failures by code.
var exceptions = map[int]string{
	codeFailure: "AnkaException", codeNotFound: "AVmNotFoundException", codeNameTaken: "AVmAlreadyExistsException",
	codeUsage: "UsageError",
}

// failure ends the program with a code. With exit codes of a guest's command it has no text.
type failure struct {
	code int
	text string
}

func (e *failure) Error() string { return e.text }

func fail(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// verb is one command of the program. Its result is the body of the answer.
type verb struct {
	options  optionTable
	operands int  // the fewest
	most     int  // the most; 0 = as many as the fewest
	rest     bool // what follows the operands is passed on, with its options
	run      func(context.Context, *call) (body any, err error)
}

var verbs = map[string]verb{
	"version": {run: showVersion},
	"license": {operands: 1, run: showLicense},
	"list":    {options: listOptions, run: listVMs},
	"show":    {operands: 1, most: 2, run: showVM},
	"clone":   {options: cloneOptions, operands: 2, run: cloneVM},
	"create":  {options: createOptions, operands: 2, run: createVM},
	"modify":  {options: modifyOptions, operands: 2, most: 6, run: modifyVM},
	"start":   {options: optionTable{"u": noValue, "v": noValue}, operands: 1, run: startVM},
	"stop":    {options: optionTable{"f": noValue, "force": noValue}, operands: 1, run: stopVM},
	"reboot":  {options: optionTable{"f": noValue, "force": noValue}, operands: 1, run: rebootVM},
	"suspend": {operands: 1, run: suspendVM},
	"delete":  {options: optionTable{"yes": noValue, "f": noValue, "force": noValue}, operands: 1, run: deleteVM},
	"run":     {options: runOptions, operands: 1, rest: true, run: runInVM},
	"view":    {options: optionTable{"s": noValue, "o": takesValue}, operands: 1, run: viewVM},
	"export":  {operands: 2, run: exportVM},
	"import":  {operands: 1, most: 2, run: importVM},
	"config":  {operands: 1, run: showConfig},
	vmVerb:    {operands: 1, run: serveVM},
	guestVerb: {operands: 1, run: serveGuest},
}

func main() { os.Exit(program(context.Background(), os.Args)) }

// program runs the command line of anka, or of a program in the guest's bin directory, and returns the exit code.
func program(ctx context.Context, args []string) int {
	if code, isShim := fakeguest.RunShim(ctx, args); isShim {
		return code
	}
	args, asJSON := takeFlag(args[1:], "-j", "--machine-readable")
	body, err := anka(ctx, args)
	if err == nil {
		printAnswer(asJSON, body)
		return 0
	}
	e, ok := errors.AsType[*failure](err)
	if !ok {
		e = &failure{codeFailure, err.Error()}
	}
	switch {
	case e.text == "":
	case asJSON:
		printJSON(map[string]any{
			"status": "ERROR", "body": map[string]any{}, "code": e.code, "message": e.text,
			"exception_type": exceptions[e.code],
		})
	default:
		fmt.Fprintln(os.Stderr, "anka:", e.text)
	}
	return e.code
}

// takeFlag removes a flag in front of the verb.
func takeFlag(args []string, names ...string) (rest []string, found bool) {
	if len(args) > 0 && slices.Contains(names, args[0]) {
		return args[1:], true
	}
	return args, false
}

func anka(ctx context.Context, args []string) (any, error) {
	if len(args) == 0 {
		return nil, fail(codeUsage, "Usage: anka [OPTIONS] COMMAND [ARGS]...")
	}
	v, found := verbs[args[0]]
	if !found {
		return nil, fail(codeUsage, "No such command '%s'.", args[0])
	}
	l, err := openLibrary()
	if err != nil {
		return nil, err
	}
	c, err := parseCall(l, args[0], v, args[1:])
	if err != nil {
		return nil, err
	}
	if slices.Contains(l.knobs.Words(c.operand(0), knobHang), args[0]) {
		fakeguest.Pause(ctx, 1000*time.Hour) // only a signal ends the program
	}
	return v.run(ctx, c)
}

// noAnswer is the body of commands that print nothing themselves.
type noAnswer struct{}

func printAnswer(asJSON bool, body any) {
	_, isQuiet := body.(noAnswer)
	switch {
	case isQuiet:
	case asJSON:
		printJSON(map[string]any{"status": "OK", "body": body})
	case body != nil:
		printJSON(body)
	}
}

// printProgress prints an object before the answer, and an empty line, as long commands do.
func printProgress(c *call, text string) {
	if !slices.Contains(os.Args[:min(2, len(os.Args))], "-j") {
		return
	}
	printJSON(map[string]any{"status": "OK", "body": map[string]any{}, "message": text + " " + c.operand(0)})
	fmt.Println()
}

func printJSON(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps and structs of texts and numbers
	}
	fmt.Println(string(b))
}
