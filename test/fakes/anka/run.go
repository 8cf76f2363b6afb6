package main

import (
	"context"
	"errors"
	"image"
	"image/png"
	"os"
	"strings"
	"time"

	"github.com/buildyard/buildyard/test/fakes/fakeguest"
)

var runOptions = optionTable{
	"w": takesValue, "workdir": takesValue, "e": takesValue, "E": noValue, "f": takesValue, "N": noValue, "n": noValue,
}

// runInVM runs a command in the guest with the standard streams of this process. It starts a VM that does not run, and
// waits for its agent.
func runInVM(ctx context.Context, c *call) (any, error) {
	v, err := c.find(c.operand(0))
	if err != nil {
		return nil, err
	}
	if err := v.start(ctx); err != nil {
		return nil, err
	}
	if c.knobs.IsSet(v.Name, knobDisconnect) {
		return nil, fail(codeDisconnected, "communication timeout")
	}
	env, err := c.environment()
	if err != nil {
		return nil, err
	}
	r := fakeguest.Request{Kind: fakeguest.Exec, Args: c.rest, Env: env, Dir: c.value("w", "workdir"), Stdin: true}
	for {
		code, err := fakeguest.Call(v.dir(), r, os.Stdin, os.Stdout, os.Stderr)
		_, isBooting := errors.AsType[fakeguest.NoAgentError](err)
		switch {
		case isBooting && v.pid() != 0:
			fakeguest.Pause(ctx, 50*time.Millisecond)
		case err != nil:
			return nil, fail(codeDisconnected, "communication timeout")
		case code != 0:
			return nil, fail(code, "")
		default:
			return noAnswer{}, nil
		}
	}
}

// environment returns the variables that the options pass on: -E all, -e one, -f those of a file.
func (c *call) environment() (env []string, err error) {
	if c.has("E") {
		for _, kv := range os.Environ() {
			if name, _, _ := strings.Cut(kv, "="); name != "HOME" && name != "PATH" && name != "TMPDIR" {
				env = append(env, kv)
			}
		}
	}
	if file := c.value("f"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		env = append(env, strings.Split(strings.TrimSpace(string(text)), "\n")...)
	}
	for _, name := range c.options["e"] {
		if !strings.Contains(name, "=") {
			name += "=" + os.Getenv(name)
		}
		env = append(env, name)
	}
	return env, nil
}

// viewVM writes a picture of the guest's screen.
func viewVM(_ context.Context, c *call) (any, error) {
	v, err := c.find(c.operand(0))
	if err != nil {
		return nil, err
	}
	if v.status() != running {
		return nil, fail(codeFailure, "%s: is not running", v.Name)
	}
	if !c.has("s") || c.value("o") == "" {
		return nil, fail(codeFailure, "%s: no GUI session", v.Name)
	}
	f, err := os.Create(c.value("o"))
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(png.Encode(f, image.NewGray(image.Rect(0, 0, 1024, 768))), f.Close())
}
