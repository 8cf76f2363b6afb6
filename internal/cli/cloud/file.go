package cloud

import (
	"context"
	"errors"
	"fmt"
	"path"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
)

func fileCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "file", Aliases: []string{"files"}, GroupID: CommandGroup,
		Short: "Manage files on the file server",
		Long: `file lists and downloads files of the registry's file server: uploaded files, logs of failed VMs and
the central logs.`,
		Example: `  buildyard file list
  buildyard file get tools/setup.sh`,
	}, fileList(s), fileGet(s))
}

var fileView = tableView[api.StoredFile]{
	itemID: func(f api.StoredFile) string { return fileName(f) },
	columns: []column[api.StoredFile]{
		{title: "NAME", value: func(f api.StoredFile) any { return fileName(f) }},
		{title: "SIZE", value: func(f api.StoredFile) any {
			if f.Dir {
				return ""
			}
			return bytesize.Format(f.Size)
		}},
		{title: "MODIFIED", value: func(f api.StoredFile) any { return timeText(f.Modified) }},
	},
}

// fileName appends a slash to the name of a directory.
func fileName(f api.StoredFile) string {
	if f.Dir {
		return f.Name + "/"
	}
	return f.Name
}

func fileList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o listOptions
	return a.addForItems(&cobra.Command{
		Use: "list [DIRECTORY]", Aliases: []string{"ls"}, Short: "List a directory", Args: cobra.MaximumNArgs(1),
		Long:    `list shows the content of a directory of the file server (default: the root).`,
		Example: `  buildyard file list tools`,
	}, func(cmd *cobra.Command, args []string) error {
		dir := ""
		if len(args) == 1 {
			dir = args[0]
		}
		look := func(ctx context.Context) ([]api.StoredFile, error) { return a.API.Files(ctx, dir) }
		return fileNotFound(showItems(cmd.Context(), &a, &o, fileView, look), dir)
	})
}

func fileGet(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	to := ""
	cmd := a.add(&cobra.Command{
		Use: "get FILE", Short: "Download a file", Args: cobra.ExactArgs(1),
		Long: `get downloads a file of the file server into the current directory, or to --file. It does not
replace an existing file.`,
		Example: `  buildyard file get tools/setup.sh
  buildyard file get tools/setup.sh --file - | bash`,
	}, func(cmd *cobra.Command, args []string) error {
		if to == "" {
			to = path.Base(args[0])
		}
		s, err := a.API.File(cmd.Context(), args[0])
		if err != nil {
			return fileNotFound(err, args[0])
		}
		defer func() { _ = s.Close() }()
		return a.writeNewFile(to, s)
	})
	cmd.Flags().StringVar(&to, "file",
		"", "destination file (default: the name of the file); - writes to standard output")
	return cmd
}

// fileNotFound is the error about a missing file.
func fileNotFound(err error, name string) error {
	if errors.Is(err, client.ErrNotFound) {
		return cli.Exit(cli.ExitNotFound, fmt.Errorf("file %q not found; see \"buildyard file list\"", name))
	}
	return err
}
