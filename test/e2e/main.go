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
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func main() { rig.Main("e2e", run) }

// options are the arguments.
type options struct {
	only, shots string
	keep        bool
}

func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	var o options
	fs := flag.NewFlagSet("e2e", flag.ContinueOnError)
	fs.StringVar(&o.only, "only", "", "flows to run, such as instances-list,instance-end (default: all)")
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
	s, err := newStage(ctx, dir, out)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return s.all(ctx, list, o, out)
}

// chosen gives the flows that are asked for.
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

// all runs the flows, each in each look, and says what came of them.
func (s *stage) all(ctx context.Context, list []flow, o options, out io.Writer) (ok bool, err error) {
	passed, failed := 0, 0
	for _, f := range list {
		var wrong []string
		for _, as := range looks {
			began := time.Now()
			p, err := s.look(ctx, f, as, o.shots)
			word := "ok  "
			if err != nil || !p.clean() {
				word, wrong = "FAIL", append(wrong, as.String())
			}
			fmt.Fprintf(out, "%s %-22s %-10s axe %d  console %d  outside %d  %.1f s  %s\n", word, f.name, as, len(p.axe), len(p.console), len(p.outside), time.Since(began).Seconds(), strings.Join(p.shots, " "))
			if err != nil {
				fmt.Fprintln(out, "     ", err)
			}
			for _, text := range slices.Concat(p.axe, p.console, p.outside) {
				fmt.Fprintln(out, "     ", text)
			}
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
		}
		if len(wrong) > 0 {
			failed++
			continue
		}
		passed++
	}
	skipped := len(flows()) - len(list)
	fmt.Fprintf(out, "%d flows in %d looks each; the screenshots are in %s\n", len(list), len(looks), o.shots)
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed == 0 && skipped == 0, nil
}
