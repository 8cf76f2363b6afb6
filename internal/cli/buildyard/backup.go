package buildyard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/cli/cloud"
	"github.com/buildyard/buildyard/internal/cli/storecommand"
	"github.com/buildyard/buildyard/internal/store/backup"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// backupOptions are the options of buildyard backup.
type backupOptions struct {
	outputFile  string
	dataDir     string // of a stopped controller; "": call a running one
	settings    string // settings file of a controller whose store is read; "": call a running one
	replaceFile bool
}

// backupCommandRun is the command that requests backups.
type backupCommandRun struct{ cloud.Command }

func backupCommand(streams Streams) *cobra.Command {
	a := backupCommandRun{cloud.Command{Streams: streams}}
	var opts backupOptions
	cmd := a.Add(&cobra.Command{
		Use: "backup FILE", GroupID: cloud.CommandGroup,
		Short: "Back up controller data",
		Long: `backup writes a consistent snapshot of the controller data to one file: instances and their history,
nodes, groups, save requests, settings and the join token. The controller keeps serving. The file
ends with a checksum, which is verified before the file gets its name; with - for FILE the backup
goes to standard output and "restore" verifies the checksum. The file contains secrets: protect it
like the data directory.

A backup does not contain templates (copy the registry's directory) or VMs, which are on the nodes.

With --data-dir it reads the data directory of a stopped controller, with --controller-config the store
that the settings of a controller name, for example an etcd cluster while no controller runs.`,
		Example: `  buildyard backup /backups/cloud.backup
  buildyard backup - | ssh vault 'cat > cloud.backup'
  buildyard backup old.backup --data-dir /var/lib/buildyard/controller
  buildyard backup old.backup --controller-config /etc/buildyard/controller.env
  SVC_BACKUP_DIR=/backups SVC_BACKUP_EVERY=1h SVC_BACKUP_KEEP=24 buildyard up`,
		Args: cobra.ExactArgs(1),
	}, func(cmd *cobra.Command, args []string) error {
		opts.outputFile = args[0]
		return a.backup(cmd.Context(), opts)
	})
	cmd.Flags().StringVar(&opts.dataDir, "data-dir", "",
		"data directory of a stopped controller, instead of a running controller")
	cmd.Flags().StringVar(&opts.settings, "controller-config", "",
		"settings file of a controller whose store is read, instead of a running controller")
	cmd.MarkFlagsMutuallyExclusive("data-dir", "controller-config")
	cmd.Flags().BoolVar(&opts.replaceFile, "force", false, "replace an existing FILE")
	return cmd
}

func (a *backupCommandRun) backup(ctx context.Context, opts backupOptions) (err error) {
	stream, size, err := a.openBackup(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	src := &progressReader{src: stream, totalBytes: size, w: a.Err, printAt: time.Now().Add(progressEvery)}
	if opts.outputFile == "-" {
		return a.pipe(src)
	}
	existing := backup.KeepExisting
	if opts.replaceFile {
		existing = backup.ReplaceExisting
	}
	sum, err := backup.WriteFile(opts.outputFile, src, existing)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s already exists; choose another name, or replace it with --force", opts.outputFile)
	}
	if err != nil {
		return err
	}
	return a.showBackup(a.Out, opts.outputFile, sum)
}

// pipe writes the stream to the standard output and everything else to standard error.
func (a *backupCommandRun) pipe(src io.Reader) error {
	sum := backup.NewChecksumWriter()
	if _, err := io.Copy(io.MultiWriter(a.Out, sum), src); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if err := sum.Err(); err != nil {
		return err
	}
	return a.showBackup(a.Err, "-", sum)
}

func (a *backupCommandRun) showBackup(w io.Writer, file string, sum *backup.ChecksumWriter) error {
	out := struct {
		File   string `json:"file"`
		Bytes  int64  `json:"bytes"`
		SHA256 string `json:"sha256"` // of all but the last 32 bytes, which are the checksum
	}{file, sum.Size(), sum.Digest()}
	return a.Output.Write(w, out, func(g *cli.Grid) {
		g.Row("backup", out.File)
		g.Row("bytes", out.Bytes)
		g.Row("sha256", out.SHA256)
	})
}

// openBackup begins a backup of a running controller, of a data directory, or of the store of settings.
func (a *backupCommandRun) openBackup(ctx context.Context, opts backupOptions) (io.ReadCloser, int64, error) {
	var b *etcd.Backend
	var err error
	switch {
	case opts.dataDir != "":
		b, err = storecommand.OpenDirectory(ctx, opts.dataDir)
	case opts.settings != "":
		b, err = storecommand.OpenConfigured(ctx, opts.settings)
	default:
		stream, err := a.API.Backup(ctx)
		if err != nil {
			return nil, 0, err
		}
		return stream, max(stream.Size, 0), nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w (without --data-dir a running controller is backed up)", err)
	}
	stream, size, err := b.Snapshot(ctx)
	if err != nil {
		return nil, 0, errors.Join(err, b.Close())
	}
	return &offlineBackup{stream, b}, size, nil
}

// offlineBackup is a backup of a store that is opened for it only.
type offlineBackup struct {
	io.ReadCloser
	store *etcd.Backend
}

// Close implements io.Closer.
func (o *offlineBackup) Close() error { return errors.Join(o.ReadCloser.Close(), o.store.Close()) }

// progressEvery is the interval between progress lines of a long backup.
const progressEvery = 5 * time.Second

// progressReader is a reader that periodically prints how many bytes it has read.
type progressReader struct {
	src                   io.Reader
	readBytes, totalBytes int64
	w                     io.Writer
	printAt               time.Time
}

// Read implements io.Reader.
func (p *progressReader) Read(b []byte) (int, error) {
	n, err := p.src.Read(b)
	p.readBytes += int64(n)
	if now := time.Now(); now.After(p.printAt) {
		p.printAt = now.Add(progressEvery)
		_, _ = fmt.Fprintf(p.w, "%s of about %s\n", bytesize.Format(p.readBytes), bytesize.Format(p.totalBytes))
	}
	return n, err
}
