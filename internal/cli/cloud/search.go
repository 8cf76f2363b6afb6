package cloud

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
)

var searchView = tableView[api.SearchMatch]{
	itemID: func(m api.SearchMatch) string { return m.Kind + "/" + m.ID },
	columns: []column[api.SearchMatch]{
		{title: "KIND", value: func(m api.SearchMatch) any { return m.Kind }},
		{title: "ID", value: func(m api.SearchMatch) any { return m.ID }},
		{title: "NAME", value: func(m api.SearchMatch) any { return m.Name }},
		{title: "STATE", value: func(m api.SearchMatch) any { return m.State }},
		{title: "DETAIL", value: func(m api.SearchMatch) any { return m.Detail }},
		{title: "MATCH", value: func(m api.SearchMatch) any { return m.Match.Field + ": " + m.Match.Text }},
	},
}

func searchCommand(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var limit int
	cmd := a.addForItems(&cobra.Command{
		Use: "search TEXT...", Short: "Search all kinds of records", Args: cobra.MinimumNArgs(1), GroupID: CommandGroup,
		Long: `search finds instances, nodes, templates, groups and API keys by ID, name, external ID, metadata,
template, tag, node, group, owner, IP address, MAC address and message, of the kinds that you may
list. All words must match. The best matches come first: the whole ID or name, its beginning, the
beginning of a word, any part.`,
		Example: `  buildyard search mac-03
  buildyard search release/7 --limit 50 -o json`,
		ValidArgsFunction: cobra.NoFileCompletions,
	}, func(cmd *cobra.Command, args []string) error {
		got, err := callAPI(cmd.Context(), func(ctx context.Context) (api.SearchResult, error) {
			return a.API.Search(ctx, strings.Join(args, " "), limit)
		})
		if err != nil {
			return err
		}
		if len(got.value.Incomplete) > 0 {
			_, _ = fmt.Fprintf(a.Err, "The registry cannot be reached: %s matches may be missing.\n",
				strings.Join(got.value.Incomplete, " and "))
		}
		return printList(&a, response[[]api.SearchMatch]{value: got.value.Matches, raw: got.raw}, searchView)
	})
	cmd.Flags().IntVar(&limit, "limit", 0, "maximum matches of each kind, 1 to 50 (default 8)")
	return cmd
}
