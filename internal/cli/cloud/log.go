package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
)

func logCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "log", Aliases: []string{"logs"}, GroupID: CommandGroup,
		Short: "Read central logs and VM failure logs",
		Long: `log shows the central logs that controllers, nodes and the registry send to the registry
(SVC_ENABLE_CENTRAL_LOGGING), and the failure logs of VMs.`,
		Example: `  buildyard log services
  buildyard log tail controller --follow
  buildyard log vm 0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22`,
	}, logServices(s), logList(s), logTail(s), logSearch(s), logArchive(s), logVM(s))
}

var serviceView = tableView[api.LogService]{
	itemID: func(l api.LogService) string { return l.Service },
	columns: []column[api.LogService]{
		{title: "SERVICE", value: func(l api.LogService) any { return l.Service }},
		{title: "FILES", value: func(l api.LogService) any { return l.Files }},
		{title: "SIZE", value: func(l api.LogService) any { return bytesize.Format(l.Size) }},
		{title: "LAST WRITE", value: func(l api.LogService) any { return timeText(l.LastWrite) }},
	},
}

func logServices(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	return a.addForItems(&cobra.Command{
		Use: "services", Short: "List services with logs", Args: cobra.NoArgs,
		Long:    `services shows the services with central logs.`,
		Example: `  buildyard log services -o name`,
	}, func(cmd *cobra.Command, _ []string) error {
		return showItems(cmd.Context(), &a, &o, serviceView, a.API.Logs().Services)
	})
}

var logView = tableView[api.LogFile]{
	itemID: func(l api.LogFile) string { return l.Name },
	columns: []column[api.LogFile]{
		{title: "FILE", value: func(l api.LogFile) any { return l.Name }},
		{title: "MACHINE", value: func(l api.LogFile) any { return l.MachineName }},
		{title: "SIZE", value: func(l api.LogFile) any { return bytesize.Format(l.Size) }},
		{title: "LAST WRITE", value: func(l api.LogFile) any { return timeText(l.LastWrite) }},
	},
}

func logList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	return a.addForItems(&cobra.Command{
		Use: "list SERVICE", Aliases: []string{"ls"}, Short: "List the log files of a service",
		Args:              cobra.ExactArgs(1),
		Long:              `list shows the log files of a service, the oldest first.`,
		Example:           `  buildyard log list node`,
		ValidArgsFunction: completeServices,
	}, func(cmd *cobra.Command, args []string) error {
		look := func(ctx context.Context) ([]api.LogFile, error) { return a.API.Logs().Files(ctx, args[0]) }
		return serviceNotFound(showItems(cmd.Context(), &a, &o, logView, look), args[0])
	})
}

// serviceNotFound is the error about a service without logs.
func serviceNotFound(err error, service string) error {
	if errors.Is(err, client.ErrNotFound) {
		return cli.Exit(cli.ExitNotFound,
			fmt.Errorf("logs of service %q not found; see \"buildyard log services\"", service))
	}
	return err
}

// completeServices completes the services with logs.
func completeServices(cmd *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, c, cancel, err := openForCompletion(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	list, _ := c.Logs().Services(ctx) // without services there is nothing to complete
	for _, l := range list {
		out = append(out, cli.EscapeName(l.Service))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

func logTail(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var v client.LogView
	var filter logFilter
	follow := false
	cmd := a.add(&cobra.Command{
		Use: "tail SERVICE", Short: "Show or follow a service's log", Args: cobra.ExactArgs(1),
		Long: `tail shows the last rows of the log of a service. With --follow it continues with new rows of all its
machines until it is interrupted, also when the service has no log yet.

--level, --field, --text and --since select rows. Without --file, these are rows of the service's last files, of all
its machines.`,
		Example: `  buildyard log tail controller -n 200
  buildyard log tail controller --level warn --since 1h
  buildyard log tail node --field machine=mac-03 --field instance_id=0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22 -f
  buildyard log tail node --follow | grep mac-03`,
		ValidArgsFunction: completeServices,
	}, func(cmd *cobra.Command, args []string) error {
		v.Service = args[0]
		switch {
		case v.Lines < 0 || v.Lines == 0 && !follow:
			return cli.Usage(errors.New("invalid --lines: want at least 1, or 0 with --follow"))
		case follow && v.File != "":
			return cli.Usage(errors.New("--follow and --file are mutually exclusive"))
		case follow && filter.since > 0:
			return cli.Usage(errors.New("--follow and --since are mutually exclusive; use --lines"))
		case follow:
			return a.followLog(cmd.Context(), v, filter.LogFilter)
		case filter.given(cmd):
			return serviceNotFound(a.findEntries(cmd.Context(), v, filter), args[0])
		}
		return serviceNotFound(a.copyLog(cmd.Context(), v), args[0])
	})
	cmd.Flags().IntVarP(&v.Lines, "lines", "n", 100, "number of rows, at most 10000")
	cmd.Flags().StringVar(&v.File, "file", "", "log file (default: the one written last)")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new rows")
	filter.addTo(cmd)
	return cmd
}

// logFilter are the flags that select rows.
type logFilter struct {
	client.LogFilter
	since time.Duration
}

// filterFlags are the names of these flags.
var filterFlags = []string{"level", "field", "text", "since"}

func (f *logFilter) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Level, "level", "", "only rows of this level or above: debug, info, warn or error")
	cmd.Flags().StringArrayVar(&f.Fields, "field", nil, "only rows with this field, `KEY=VALUE`; repeatable")
	cmd.Flags().StringVar(&f.Text, "text", "", "only rows that contain this text, in any case")
	cmd.Flags().DurationVar(&f.since, "since", 0, "only rows that are not older (default: any age)")
	_ = cmd.RegisterFlagCompletionFunc("level", cobra.FixedCompletions(
		[]string{api.LogDebug, api.LogInfo, api.LogWarn, api.LogError}, cobra.ShellCompDirectiveNoFileComp))
}

// given reports whether the command was given one of the flags.
func (f *logFilter) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(filterFlags, cmd.Flags().Changed)
}

// maxEntries is the most rows that one call returns.
const maxEntries = 1000

// findEntries prints the last rows that match. A hint follows when older rows were not read.
func (a *Command) findEntries(ctx context.Context, v client.LogView, filter logFilter) error {
	q := client.LogQuery{
		LogFilter: filter.LogFilter, Service: v.Service, File: v.File, Limit: min(v.Lines, maxEntries),
	}
	if filter.since > 0 {
		q.Since = time.Now().Add(-filter.since)
	}
	found, err := a.API.Logs().Entries(ctx, q)
	if err != nil {
		return err
	}
	for _, entry := range found.Entries {
		if _, err := fmt.Fprintln(a.Out, escapeRow(entry.Raw)); err != nil {
			return err
		}
	}
	if !found.Complete && len(found.Entries) < q.Limit {
		_, _ = fmt.Fprintf(a.Err, "searched the last %s; older rows: buildyard log search %s REGEXP\n",
			bytesize.Format(found.Bytes), cli.EscapeName(v.Service))
	}
	return nil
}

func (a *Command) copyLog(ctx context.Context, v client.LogView) error {
	s, err := a.API.Logs().View(ctx, v)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	return a.printText(s)
}

// printText prints an untrusted text.
func (a *Command) printText(s io.Reader) error {
	return eachRow(s, func(row string) error {
		_, err := fmt.Fprintln(a.Out, escapeRow(row))
		return err
	})
}

func (a *Command) followLog(ctx context.Context, v client.LogView, filter client.LogFilter) error {
	for row, err := range a.API.Logs().Follow(ctx,
		client.LogFollow{LogFilter: filter, Service: v.Service, Last: v.Lines, OnInterrupt: a.reportInterrupt}) {
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		if _, err := fmt.Fprintln(a.Out, escapeRow(row)); err != nil {
			return err
		}
	}
	return nil
}

func logSearch(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	cmd := a.add(&cobra.Command{
		Use: "search SERVICE REGEXP", Short: "Search a service's log", Args: cobra.ExactArgs(2),
		Long: `search prints the rows of all log files of a service that match a regular expression, each after the
name of its file, the oldest file first. The exit code is 3 when no row matches.`,
		Example:           `  buildyard log search node 'pull .*failed'`,
		ValidArgsFunction: completeServices,
	}, func(cmd *cobra.Command, args []string) error {
		want, err := regexp.Compile(args[1])
		if err != nil {
			return cli.Usage(err)
		}
		return serviceNotFound(a.searchLog(cmd.Context(), args[0], want), args[0])
	})
	return cmd
}

func (a *Command) searchLog(ctx context.Context, service string, want *regexp.Regexp) error {
	files, err := a.API.Logs().Files(ctx, service)
	if err != nil {
		return err
	}
	found := 0
	for _, f := range files {
		s, err := a.API.Logs().View(ctx, client.LogView{Service: service, File: f.Name})
		if errors.Is(err, client.ErrNotFound) {
			continue // it was removed concurrently
		}
		if err != nil {
			return err
		}
		err = eachRow(s, func(row string) error {
			if !want.MatchString(row) {
				return nil
			}
			found++
			_, err := fmt.Fprintf(a.Out, "%s: %s\n", cli.EscapeName(f.Name), escapeRow(row))
			return err
		})
		if err := errors.Join(err, s.Close()); err != nil {
			return err
		}
	}
	if found == 0 {
		return cli.Exit(cli.ExitNotFound, fmt.Errorf("no matching row in the logs of %s", service))
	}
	return nil
}

func logArchive(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	file := ""
	cmd := a.add(&cobra.Command{
		Use: "archive SERVICE", Short: "Download a service's log files", Args: cobra.ExactArgs(1),
		Long:              `archive downloads all log files of a service as SERVICE.tar.gz, or to --file.`,
		Example:           `  buildyard log archive controller --file - | tar tz`,
		ValidArgsFunction: completeServices,
	}, func(cmd *cobra.Command, args []string) error {
		if file == "" {
			file = args[0] + ".tar.gz"
		}
		s, err := a.API.Logs().Archive(cmd.Context(), args[0])
		if err != nil {
			return serviceNotFound(err, args[0])
		}
		defer func() { _ = s.Close() }()
		return a.writeNewFile(file, s)
	})
	cmd.Flags().StringVar(&file, "file", "", "destination file; - writes to standard output")
	return cmd
}

// writeNewFile writes a stream to a new file and removes the file when it is incomplete.
func (a *Command) writeNewFile(name string, from io.Reader) error {
	if name == "-" {
		_, err := io.Copy(a.Out, from)
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, from)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(name)
		return err
	}
	_, err = fmt.Fprintf(a.Out, "%s  %s\n", name, bytesize.Format(n))
	return err
}

var vmLogView = tableView[client.VMLog]{
	itemID: func(l client.VMLog) string { return l.Name },
	columns: []column[client.VMLog]{
		{title: "FILE", value: func(l client.VMLog) any { return l.Name }},
		{title: "SIZE", value: func(l client.VMLog) any { return bytesize.Format(l.Size) }},
		{title: "MODIFIED", value: func(l client.VMLog) any { return timeText(l.Modified) }},
	},
}

func logVM(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	return a.addForItems(&cobra.Command{
		Use: "vm INSTANCE [FILE]", Short: "Show a failed VM's logs", Args: cobra.RangeArgs(1, 2),
		Long: `vm lists the failure logs of an instance, or shows one of them. A terminated instance requires its full
ID.`,
		Example: `  buildyard log vm nightly
  buildyard log vm 0197e1c2-54a3-7c11-9f5e-0d6f4f0a1b22 start.log`,
		ValidArgsFunction: instances.completeArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		id, err := instances.find(cmd.Context(), a.API, args[0])
		if err != nil {
			return err
		}
		if len(args) == 1 {
			look := func(ctx context.Context) ([]client.VMLog, error) { return a.API.VMLogs(ctx, id) }
			return logsNotFound(showItems(cmd.Context(), &a, &o, vmLogView, look), args[0])
		}
		text, err := a.API.VMLog(cmd.Context(), id, args[1])
		if err != nil {
			return logsNotFound(err, args[0])
		}
		defer func() { _ = text.Close() }()
		return a.printText(text)
	})
}

func logsNotFound(err error, instance string) error {
	if errors.Is(err, client.ErrNotFound) {
		return cli.Exit(cli.ExitNotFound, fmt.Errorf("failure logs of instance %q not found", instance))
	}
	return err
}

// escapeRow escapes an untrusted row so that it cannot control the terminal.
func escapeRow(row string) string { return cli.EscapeName(strings.ReplaceAll(row, "\t", "    ")) }
