package buildnode

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/transfer"
)

func registryList(o *registryOptions) *cobra.Command {
	var output cli.Format
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List registry templates",
		Example: `  buildnode registry list -r http://registry.example:8089`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := o.client(cmd.Context(), tryQuestion)
			if err != nil {
				return err
			}
			defer client.Close()
			list, err := client.ListTemplates(cmd.Context())
			if err != nil {
				return err
			}
			if list == nil {
				list = []api.Template{}
			}
			return output.Write(o.Out, list, func(g *cli.Grid) {
				g.Row("ID", "NAME", "ARCH", "SIZE", "LAST PUSH", "LAST PULL")
				for _, t := range list {
					g.Row(t.ID, t.Name, t.Arch, bytesize.Format(t.Size), formatDay(t.LastPush), formatDay(t.LastPull))
				}
			})
		},
	}
	output.Add(cmd)
	return cmd
}

// formatDay formats a time of the registry; times are shown in UTC.
func formatDay(epoch int64) string {
	if epoch == 0 {
		return "never"
	}
	return time.Unix(epoch, 0).UTC().Format("2006-01-02 15:04")
}

func registryShow(o *registryOptions) *cobra.Command {
	var output cli.Format
	cmd := &cobra.Command{
		Use:   "show <template>",
		Short: "Show a registry template and its tags",
		Long: `show prints a template of the registry. Each version has two sizes: the bytes that a node with an empty
cache pulls, and after "+" the increment over the older versions.`,
		Example: `  buildnode registry show debian --output json`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := o.client(cmd.Context(), tryQuestion)
			if err != nil {
				return err
			}
			defer client.Close()
			t, err := findTemplate(cmd.Context(), client, args[0])
			if err != nil {
				return err
			}
			return output.Write(o.Out, t, func(g *cli.Grid) {
				g.Row("ID", t.ID)
				g.Row("Name", t.Name)
				g.Row("Architecture", t.Arch)
				g.Row("Size", bytesize.Format(t.Size))
				g.Row("Last push", formatDay(t.LastPush))
				g.Row("Last pull", formatDay(t.LastPull))
				for _, v := range t.Versions {
					g.Row("Version", fmt.Sprintf("%d", v.Number), v.Tag, bytesize.Format(v.Size),
						"+"+bytesize.Format(v.Increment), formatDay(v.CreationDate), v.Description)
				}
			})
		},
	}
	output.Add(cmd)
	return cmd
}

// RevertOptions are the options of registry revert.
type RevertOptions struct {
	*registryOptions
	Template      string
	Tag           string
	VersionNumber int // < 0: not given
	Yes           cli.Confirmation
}

func registryRevert(r *registryOptions) *cobra.Command {
	o := RevertOptions{registryOptions: r}
	cmd := &cobra.Command{
		Use:   "revert <template>",
		Short: "Delete a tag and all newer tags",
		Long:  `revert deletes a tag and all newer tags; without -t or --number only the latest tag.`,
		Example: `  buildnode registry revert debian
  buildnode registry revert debian -t v3 --yes`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Template = args[0]
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&o.Tag, "tag", "t", "", "oldest tag to delete")
	cmd.Flags().IntVar(&o.VersionNumber, "number", -1, "number of the oldest version to delete")
	cmd.MarkFlagsMutuallyExclusive("tag", "number")
	o.Yes.Add(cmd)
	return cmd
}

func (o *RevertOptions) run(ctx context.Context) error {
	if err := o.Yes.Ask(ctx, o.Streams, "Delete a version of %s and all newer ones from the registry?",
		o.Template); err != nil {
		return err
	}
	client, err := o.client(ctx, tryQuestion)
	if err != nil {
		return err
	}
	defer client.Close()
	t, err := findTemplate(ctx, client, o.Template)
	if err != nil {
		return err
	}
	ref := transfer.VersionRef{ID: t.ID, Tag: o.Tag}
	if o.VersionNumber >= 0 {
		ref.Number = &o.VersionNumber
	}
	if err := client.Revert(ctx, ref); err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.Out, "reverted %s (%s)\n", cli.EscapeName(t.Name), t.ID)
	return err
}
