package buildnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/service"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/doctor"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/supportbundle"
)

// SupportBundleOptions are the options of support-bundle.
type SupportBundleOptions struct {
	*globals
	File   string
	Output cli.Format
}

func supportBundleCommand(g *globals) *cobra.Command {
	o := SupportBundleOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write an archive for support",
		Long: `support-bundle writes a tar.gz with versions, the status of this node, the results of doctor, and the end of the
log of the service. Secrets are masked, and the size is bounded. What cannot be read is listed in
problems.txt. Look through the archive before you send it. Run it as the user of the agent.`,
		Example: `  sudo buildnode support-bundle
  buildnode support-bundle --file node.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&o.File, "file", "",
		"file to create (default: buildnode-support-TIME.tar.gz in this directory)")
	o.Output.Add(cmd)
	return cmd
}

func (o *SupportBundleOptions) run(ctx context.Context) (err error) {
	at, err := o.openDataDir()
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	name := "buildnode-support-" + now.Format("20060102-150405")
	if o.File == "" {
		o.File = name + ".tar.gz"
	}
	f, err := os.OpenFile(o.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create support bundle: %w", err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = os.Remove(o.File)
		}
	}()

	b := supportbundle.New(f, supportbundle.Options{Dir: name, Time: now, Secrets: nodeSecrets(at)})
	o.addEntries(ctx, b, at, now)
	if err := b.Close(); err != nil {
		return err
	}
	for _, problem := range b.Problems() {
		_, _ = fmt.Fprintf(o.Err, "note: %s\n", cli.EscapeName(problem))
	}
	return o.Output.Write(o.Out, map[string]any{"file": o.File, "problems": b.Problems()},
		func(g *cli.Grid) { g.Row(o.File) })
}

// nodeSecrets returns the secrets in the data directory.
func nodeSecrets(at datadir.Dir) (secrets []string) {
	if identity, err := at.Identity(); err == nil {
		secrets = append(secrets, identity.Credential)
		if identity.APIKey != nil {
			if key, err := os.ReadFile(identity.APIKey.KeyFile); err == nil {
				secrets = append(secrets, string(key))
			}
		}
	}
	return secrets
}

func (o *SupportBundleOptions) addEntries(
	ctx context.Context, b *supportbundle.Bundle, at datadir.Dir, now time.Time,
) {
	add := func(name string, find func() (any, error)) {
		b.Add(name, func() ([]byte, error) {
			value, err := find()
			if err != nil {
				return nil, err
			}
			return json.MarshalIndent(value, "", "  ")
		})
	}
	add("version.json", func() (any, error) {
		return map[string]any{
			"program": "buildnode", "version": obs.FullVersion(), "go": runtime.Version(), "os": runtime.GOOS,
			"arch": runtime.GOARCH, "cpus": runtime.NumCPU(), "time": now,
		}, nil
	})
	add("status.json", func() (any, error) { return readStatus(ctx, at) })
	add("doctor.json", func() (any, error) {
		checks, err := (&DoctorOptions{globals: o.globals}).checks(ctx)
		return cli.CheckList{Outcome: doctor.Worst(checks), Checks: checks}, err
	})
	add("files.json", func() (any, error) { return listFiles(at) })
	b.Add("service.log", func() ([]byte, error) { return o.serviceLog(ctx) })
}

// maxFiles bounds the list of files.
const maxFiles = 2000

// listFiles returns the names and sizes of the files in the data directory, without their contents.
func listFiles(at datadir.Dir) (list []string, err error) {
	err = fs.WalkDir(os.DirFS(at.Path()), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || len(list) >= maxFiles {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it was removed since
		}
		list = append(list, fmt.Sprintf("%s %d %s", info.Mode(), info.Size(), path))
		return nil
	})
	return list, err
}

const (
	serviceLogLines = 5000
	serviceLogTime  = 20 * time.Second
	maxServiceLog   = 4 * supportbundle.MaxEntryBytes
)

// serviceLog returns the end of the log of the service.
func (o *SupportBundleOptions) serviceLog(ctx context.Context) ([]byte, error) {
	s, err := (&ServiceOptions{globals: o.globals}).open()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, serviceLogTime)
	defer cancel()
	return service.ReadLog(ctx, s.LogCommand(service.LogOptions{Lines: serviceLogLines}), maxServiceLog)
}
