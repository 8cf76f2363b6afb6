package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("e2e", run) }

// options are the arguments.
type options struct {
	only, shots, look string
	keep              bool
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	var o options
	fs := flag.NewFlagSet("e2e", flag.ContinueOnError)
	fs.StringVar(&o.only, "only", "", "flows to run, such as instances-list,instance-end (default: all)")
	fs.StringVar(&o.look, "look", "", "the one look to use, such as \"firefox dark 390\" (default: all)")
	fs.StringVar(&o.shots, "shots", "", "directory for the screenshots (default: a new one)")
	fs.BoolVar(&o.keep, "keep", false, "keep the data and the logs")
	if err := fs.Parse(args); err != nil {
		return false, err
	}
	if err := checkAxe(); err != nil {
		return false, err
	}
	list, err := chosen(o.only)
	if err != nil {
		return false, err
	}
	dir, done, err := rig.WorkDir("e2e", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if o.shots == "" {
		if o.shots, err = os.MkdirTemp("", "buildyard-shots-"); err != nil {
			return false, err
		}
	}
	if o.shots, err = filepath.Abs(o.shots); err == nil {
		err = os.MkdirAll(o.shots, 0o755)
	}
	if err != nil {
		return false, err
	}
	s, err := newStage(ctx, dir, list, out)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return s.all(ctx, list, o, out)
}

// chosen returns the flows that are asked for.
func chosen(only string) (list []flow, err error) {
	all := flows()
	if only == "" {
		return all, nil
	}
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(f flow) bool { return f.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no flow %q", name)
		}
		list = append(list, all[i])
	}
	return list, nil
}

// all runs the flows, each in each look, and prints the results.
func (s *stage) all(ctx context.Context, list []flow, o options, out io.Writer) (ok bool, err error) {
	passed, failed, start := 0, 0, time.Now()
	used := slices.DeleteFunc(slices.Clone(looks), func(l look) bool { return o.look != "" && o.look != l.String() })
	for _, f := range list {
		fine := true
		if f.before != nil {
			if err := f.before(ctx, s); err != nil {
				return false, fmt.Errorf("%s: %w", f.name, err)
			}
		}
		for _, l := range s.looks(ctx, f, used, o.shots) {
			fine = l.tell(f, out) && fine
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if fine {
			passed++
		} else {
			failed++
		}
	}
	if err := s.compare(ctx, used, o.shots, out); err != nil {
		return false, err
	}
	if missing := missingPictures(used, o.shots); o.only == "" && len(missing) > 0 {
		fmt.Fprintln(out, "FAIL there is no picture of", strings.Join(missing, ", "))
		failed++
	}
	skipped := len(flows()) - len(list) + len(looks) - len(used) // a flow that lacks a look was not whole
	fmt.Fprintf(out, "%d flows in %d looks each, in %.0f s; the screenshots are in %s\n", len(list), len(used),
		time.Since(start).Seconds(), o.shots)
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed == 0 && skipped == 0, nil
}

// looked is the result of a flow in a look.
type looked struct {
	*page
	as   look
	err  error
	took time.Duration
}

// tell prints it, and reports whether it passed.
func (l looked) tell(f flow, out io.Writer) bool {
	word, fine := "ok  ", l.err == nil && l.clean()
	if !fine {
		word = "FAIL"
	}
	fmt.Fprintf(out, "%s %-22s %-21s axe %d  console %d  outside %d  %.1f s  %s\n", word, f.name, l.as, len(l.axe),
		len(l.console), len(l.outside), l.took.Seconds(), strings.Join(l.shots, " "))
	if l.err != nil {
		fmt.Fprintln(out, "     ", l.err)
	}
	for _, text := range slices.Concat(l.axe, l.console, l.outside) {
		fmt.Fprintln(out, "     ", text)
	}
	return fine
}

// concurrentFlows is how many looks of a flow are tried at the same time.
const concurrentFlows = 2

// looks runs a flow in looks, some at the same time.
func (s *stage) looks(ctx context.Context, f flow, used []look, shots string) []looked {
	all, room := make([]looked, len(used)), make(chan struct{}, concurrentFlows)
	if f.alone {
		room = make(chan struct{}, 1)
	}
	var open sync.WaitGroup
	for i, as := range used {
		room <- struct{}{}
		open.Go(func() {
			defer func() { <-room }()
			began := time.Now()
			p, err := s.look(ctx, f, as, shots)
			all[i] = looked{p, as, err, time.Since(began)}
		})
	}
	open.Wait()
	return all
}
