package diagnose

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/cloud"
)

// topOptions are the options of top.
type topOptions struct {
	cloud.Command
	once     bool
	interval time.Duration
}

// minTopInterval bounds the calls of a live table.
const minTopInterval = 500 * time.Millisecond

func topCommand(s cli.Streams) *cobra.Command {
	o := &topOptions{Command: cloud.Command{Streams: s}}
	cmd := o.Add(&cobra.Command{
		Use: "top", Short: "Show load and queue live", Args: cobra.NoArgs, GroupID: cloud.CommandGroup,
		Long: `top shows the load of the nodes, the pending instances with their reasons, the instances that start or
failed, and rates. On a terminal it continues until Ctrl-C; in a pipe, with --once and with -o json it
prints one snapshot.`,
		Example: `  buildyard top
  buildyard top --once
  buildyard top -o json | jq '.pending[] | select(.count > 10)'`,
	}, func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) })
	cmd.Flags().BoolVar(&o.once, "once", false, "print one snapshot and exit")
	cmd.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "time between two updates, at least 500ms")
	return cmd
}

func (o *topOptions) run(ctx context.Context) error {
	if o.interval < minTopInterval {
		return cli.Usage(fmt.Errorf("invalid --interval %s: want at least %s", o.interval, minTopInterval))
	}
	if o.once || o.Output != cli.Table || cli.Columns(o.Out) == 0 {
		s, err := takeSnapshot(ctx, o.API, snapshotLimit)
		if err != nil {
			return err
		}
		return o.Output.Write(o.Out, s, s.table)
	}
	return o.showLive(ctx)
}

// showLive redraws the screen until the context ends.
func (o *topOptions) showLive(ctx context.Context) error {
	for first := true; ; first = false {
		began := time.Now()
		s, err := takeSnapshot(ctx, o.API, cli.Rows(o.Out))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && first {
			return err
		}
		if err := drawScreen(o.Out, s, err, first); err != nil {
			return err
		}
		// A slow controller is called less often: at most every fifth of the time is spent waiting for it.
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(o.interval, 4*time.Since(began))):
		}
	}
}

// Control sequences of terminals.
const (
	clearScreen = "\x1b[2J"
	cursorHome  = "\x1b[H"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
)

// drawScreen draws a snapshot over the last one, or the error that hides the present state.
func drawScreen(w io.Writer, s *snapshot, problem error, first bool) error {
	var text bytes.Buffer
	if problem != nil {
		fmt.Fprintf(&text, "%s; retrying\n", cli.EscapeName(problem.Error()))
	} else if err := cli.Table.Write(&text, s, s.table); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
	if rows := cli.Rows(w); len(lines) > rows-1 {
		lines = lines[:max(rows-1, 1)]
	}

	var out bytes.Buffer
	if first {
		out.WriteString(clearScreen)
	}
	out.WriteString(cursorHome)
	for _, line := range lines {
		out.WriteString(cli.CutLine(line, cli.Columns(w)) + clearLine + "\r\n")
	}
	out.WriteString(clearBelow)
	_, err := w.Write(out.Bytes())
	return err
}
