package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// defaultTokenTTL is the lifetime of a created token without --ttl. The controller's own default is none.
const defaultTokenTTL = "24h"

// tokenOptions are the options of node token.
type tokenOptions struct {
	Command
	dataDir     string
	replace     bool
	once        bool
	ttl         string
	description string

	// readStored returns the permanent token that the controller has stored on this machine, in the data directory
	// or, with "", in the one of the settings. The error wraps fs.ErrNotExist when there is none.
	readStored func(dataDir string) (string, error)
}

// TokenCommand returns the command for join tokens. readStored returns the permanent token that a controller has
// stored in its data directory, "" being the directory of the settings.
func TokenCommand(streams cli.Streams, readStored func(dataDir string) (string, error)) *cobra.Command {
	o := tokenOptions{Command: Command{Streams: streams}, readStored: readStored}
	cmd := o.Add(&cobra.Command{
		Use:   "token",
		Short: "Print or create a join token",
		Long: `token prints a join token, with which a machine becomes a node. A node receives the scripts of jobs: keep
tokens secret.

For a caller who may read the data directory of the controller on this machine it is the permanent
token. Otherwise, and with --controller, the controller creates a token; that requires the permission
change_node_config. --ttl, --once and --description always create one. A created token expires after
24 hours, or after --ttl.

--new replaces the permanent token, which does not expire: the former one becomes invalid. Nodes that
have joined stay.`,
		Example: `  buildyard node token | buildnode join http://controller.example:8090 --token-file -
  buildyard node token --once --ttl 1h --description "mac-07"
  buildyard node token --new`,
		Args: cobra.NoArgs,
	}, o.run)
	fs := cmd.Flags()
	fs.StringVar(&o.dataDir, "data-dir", "", "data directory of the controller with the permanent token")
	fs.BoolVar(&o.replace, "new", false, "replace the permanent token")
	fs.BoolVar(&o.once, "once", false, "create a token that registers one node")
	fs.StringVar(&o.ttl, "ttl", "",
		"create a token that expires after this time: days such as 7d, or a duration such as 1h (default: 24h)")
	fs.StringVar(&o.description, "description", "", "description of the created token")
	cmd.MarkFlagsMutuallyExclusive("new", "once")
	cmd.MarkFlagsMutuallyExclusive("new", "ttl")
	for _, name := range []string{"new", "once", "ttl", "description"} {
		cmd.MarkFlagsMutuallyExclusive("data-dir", name)
	}
	acceptSettings(cmd)
	cmd.AddCommand(tokenList(streams), tokenRevoke(streams))
	return cmd
}

// acceptSettings accepts the settings of a controller on a command that read them in earlier releases. They have no
// effect.
func acceptSettings(cmd *cobra.Command) {
	fs := cmd.Flags()
	for _, s := range config.ControllerTable {
		if s.Flag == "" || fs.Lookup(s.Flag) != nil {
			continue
		}
		fs.String(s.Flag, "", s.Help)
		if s.Kind == config.Bool {
			fs.Lookup(s.Flag).NoOptDefVal = "true"
		}
		_ = fs.MarkDeprecated(s.Flag, "it has no effect on this command")
	}
}

func (o *tokenOptions) run(cmd *cobra.Command, _ []string) error {
	fs := cmd.Flags()
	create := o.replace || o.once || fs.Changed("ttl") || o.description != ""
	switch remote := fs.Changed("controller") || fs.Changed("context"); {
	case create:
	case remote && o.dataDir == "":
	default:
		token, err := o.readStored(o.dataDir)
		if err == nil {
			return o.printToken(token)
		}
		if o.dataDir != "" || !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	if !o.replace && !fs.Changed("ttl") {
		o.ttl = defaultTokenTTL
	}
	return o.create(cmd.Context())
}

// printToken prints a token that was read from a file.
func (o *tokenOptions) printToken(token string) error {
	return o.Output.Write(o.Out, api.JoinToken{Token: token, Permanent: true}, func(g *cli.Grid) { g.Row(token) })
}

// create creates a token and prints it.
func (o *tokenOptions) create(ctx context.Context) error {
	req := api.CreateJoinToken{Once: o.once, Replace: o.replace, Description: o.description}
	if !o.replace {
		life, err := parseTTL(o.ttl)
		if err != nil {
			return cli.Usage(err)
		}
		req.TTL = life.String()
	}
	got, err := callAPI(ctx, func(ctx context.Context) (client.JoinToken, error) {
		return o.API.CreateJoinToken(ctx, req)
	})
	if client.CodeOf(err) == client.ErrUnsupported {
		return fmt.Errorf("the controller is too old to create join tokens; read the token on its machine with " +
			"--data-dir")
	}
	if err != nil {
		return err
	}
	if o.Output == cli.JSON || o.Output == cli.YAML {
		return o.Output.WriteDocument(o.Out, got.raw)
	}
	if _, err := io.WriteString(o.Out, cli.EscapeName(got.value.Reveal())+"\n"); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(o.Err, cli.EscapeName(describeToken(got.value.Info)))
	return nil
}

// describeToken describes a new token in a sentence.
func describeToken(t api.JoinToken) string {
	text := "Join token " + t.ID + " is shown only once"
	if t.Once {
		text += "; it registers one node"
	}
	if t.Expires.IsZero() {
		text += "; it does not expire"
	} else {
		text += "; it expires at " + timeText(t.Expires)
	}
	if t.Permanent {
		text += "; the former permanent token is no longer valid"
	}
	return text
}

var tokenView = tableView[api.JoinToken]{
	itemID: func(t api.JoinToken) string { return t.ID },
	columns: []column[api.JoinToken]{
		{title: "ID", value: func(t api.JoinToken) any { return t.ID }},
		{title: "KIND", value: func(t api.JoinToken) any { return tokenKind(t) }},
		{title: "EXPIRES", value: func(t api.JoinToken) any { return timeText(t.Expires) }},
		{title: "CREATED", value: func(t api.JoinToken) any { return timeText(t.Created) }},
		{title: "BY", value: func(t api.JoinToken) any { return t.CreatedBy }},
		{title: "DESCRIPTION", value: func(t api.JoinToken) any { return t.Description }},
	},
}

func tokenKind(t api.JoinToken) string {
	switch {
	case !t.Expires.IsZero() && !time.Now().Before(t.Expires):
		return "expired"
	case t.Permanent:
		return "permanent"
	case t.Once:
		return "one node"
	}
	return "many nodes"
}

func tokenList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.addForItems(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List join tokens", Args: cobra.NoArgs,
		Long: `list shows the join tokens without their secrets, which the controller does not store. A used token of
--once is not listed; an expired one is, for a day.`,
		Example: `  buildyard node token list`,
	}, func(cmd *cobra.Command, _ []string) error {
		got, err := callAPI(cmd.Context(), a.API.JoinTokens)
		if err != nil {
			return err
		}
		return printList(&a, got, tokenView)
	})
}

func tokenRevoke(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.Add(&cobra.Command{
		Use: "revoke TOKEN-ID...", Aliases: []string{"rm"}, Short: "Revoke join tokens", Args: cobra.MinimumNArgs(1),
		Long:    `revoke makes join tokens invalid. Nodes that have joined with them stay.`,
		Example: `  buildyard node token revoke 5f3c1d8e90ab7c21`,
	}, func(cmd *cobra.Command, args []string) error {
		return a.printResults(runOnEach(cmd.Context(), args, "revoked", func(ctx context.Context, id string) error {
			err := a.API.RevokeJoinToken(ctx, id)
			if errors.Is(err, client.ErrNotFound) {
				return cli.Exit(cli.ExitNotFound,
					fmt.Errorf(`join token %q not found; see "buildyard node token list"`, id))
			}
			return err
		}))
	})
}
