package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// commands are what the first argument may be; the others are the command's own.
var commands = map[string]struct {
	usage string
	args  int
	run   func(ctx context.Context, args []string) (any, error)
}{
	"serve": {"ADDRESS DIR", 2, serve},
	"push":  {"ADDRESS TAG IMAGE DIR", 4, push},
	"pull":  {"ADDRESS TAG DIR", 3, pull},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

// run runs a command and prints its answer, if it has one, as one line of JSON.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: peer serve|push|pull ARGUMENTS")
	}
	c, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("there is no command %q", args[0])
	}
	if len(args) != 1+c.args {
		return fmt.Errorf("usage: peer %s %s", args[0], c.usage)
	}
	answer, err := c.run(ctx, args[1:])
	if err != nil || answer == nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(answer)
}
