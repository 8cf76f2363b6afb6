package buildnode

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/proxy"
	"github.com/buildyard/buildyard/internal/agent/remote"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/clienttls"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// registryOptions define the registry of a command and how to connect to it.
type registryOptions struct {
	*globals
	Registry string // name or address; "": the current one
	TLS      datadir.TLSFiles
	Login    loginOptions

	credentialsName string // description of the credentials; "": anonymous, or the certificate's owner
}

func registryCommand(g *globals) *cobra.Command {
	o := &registryOptions{globals: g}
	cmd := &cobra.Command{
		Use:   "registry",
		Short: "Manage registries, push and pull templates",
		Long: `registry manages named registries and transfers templates. "add" names a registry and makes it the
current one, which the other commands use without -r. A registry with authentication is called with
the given credentials, or with those of "add". Without any, and while the agent of this node runs,
the registry of the node's cloud is called with the API key that the node joined with.`,
		Example: `  buildnode registry add main http://registry.example:8089
  buildnode registry list
  buildnode registry push debian -t v1 -d "with the tools of May"
  buildnode registry pull debian -t v1`,
		Args: cobra.NoArgs, RunE: showHelp,
	}
	fs := cmd.PersistentFlags()
	fs.StringVarP(&o.Registry, "remote", "r", "", "name or address of the registry (default: the current one)")
	addTLS(fs, &o.TLS, "registry")
	o.Login.add(fs)
	for _, child := range []*cobra.Command{
		registryAdd(o), registrySet(o), registryRepos(o), registryRemove(o),
		registryList(o), registryShow(o), registryRevert(o), registryPush(o), registryPull(o),
		registryExport(o), registryImport(o),
	} {
		cmd.AddCommand(o.withAuthErrorHints(child))
	}
	return cmd
}

func (o *registryOptions) namedRegistries() (*remote.List, error) {
	at, err := o.openDataDir()
	if err != nil {
		return nil, err
	}
	return remote.Load(at.RegistriesFile())
}

// Tries of a request: few for an interactive query, more for the chunks of a long transfer, to outlast
// a short outage.
const (
	tryQuestion = 3
	tryTransfer = 8
)

// client returns a client of the selected registry. Options of the command override those that the
// registry was added with. Without credentials, if the registry is that of this node's cloud, the
// agent sends the requests with the API key that the node joined with.
func (o *registryOptions) client(ctx context.Context, attempts int) (*transfer.Client, error) {
	names, err := o.namedRegistries()
	if err != nil {
		return nil, err
	}
	r, err := names.Resolve(o.Registry)
	if err != nil {
		return nil, err
	}
	o.TLS = mergeTLS(r.TLS, o.TLS)
	config, err := clienttls.Config(clienttls.Options(o.TLS))
	if err != nil {
		return nil, err
	}
	to := transfer.Options{BaseURL: r.URL, TLS: config, MaxAttempts: attempts}
	creds, as, err := o.credentials(r)
	if err != nil {
		return nil, err
	}
	o.credentialsName = as
	if creds == nil && o.TLS.CertFile == "" {
		if at, err := o.openDataDir(); err == nil && isThroughProxy(ctx, at, r.URL) {
			to.BaseURL, to.Dial, o.credentialsName = proxy.Base, proxy.Dialer(at.SocketDir()), nodeKeyName
			return transfer.New(to)
		}
	}
	if err := setCredentials(&to, creds, o.TLS); err != nil {
		return nil, err
	}
	return transfer.New(to)
}

// nodeKeyName describes the credentials of requests through the agent.
const nodeKeyName = "the API key of this node"

func mergeTLS(kept, given datadir.TLSFiles) datadir.TLSFiles {
	kept.SkipVerify = kept.SkipVerify || given.SkipVerify
	if given.CertFile != "" || given.KeyFile != "" {
		kept.CertFile, kept.KeyFile = given.CertFile, given.KeyFile
	}
	if given.CAFile != "" {
		kept.CAFile = given.CAFile
	}
	return kept
}

func registryAdd(o *registryOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "add <name> <registry URL>",
		Short: "Add a registry and make it current",
		Long: `add stores its options for later commands: those of certificates, and the names of the files with the
private key or the root token.`,
		Example: `  buildnode registry add main http://registry.example:8089
  buildnode registry add safe https://registry.example --ca-cert ca.pem --api-key-id ci --api-key-file ci.key`,
		Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			certs, err := o.TLS.Absolute()
			if err != nil {
				return err
			}
			added := remote.Registry{Name: args[0], URL: args[1], TLS: certs}
			if err := o.Login.storeIn(&added); err != nil {
				return err
			}
			at, err := o.openDataDir()
			if err != nil {
				return err
			}
			if err := at.Create(); err != nil {
				return err
			}
			names, err := o.namedRegistries()
			if err != nil {
				return err
			}
			if err := names.Add(added); err != nil {
				return err
			}
			_, err = fmt.Fprintf(o.Out, "%s is the current registry\n", args[0])
			return err
		},
	}
}

func registrySet(o *registryOptions) *cobra.Command {
	return &cobra.Command{
		Use:     "set <name>",
		Short:   "Select the current registry",
		Example: `  buildnode registry set main`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			names, err := o.namedRegistries()
			if err != nil {
				return err
			}
			return names.SetCurrent(args[0])
		},
	}
}

func registryRepos(o *registryOptions) *cobra.Command {
	var output cli.Format
	cmd := &cobra.Command{
		Use:     "list-repos",
		Short:   "List named registries",
		Example: `  buildnode registry list-repos`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			names, err := o.namedRegistries()
			if err != nil {
				return err
			}
			return output.Write(o.Out, names, func(g *cli.Grid) {
				g.Row("NAME", "ADDRESS", "CURRENT")
				for _, r := range names.Registries {
					current := ""
					if r.Name == names.CurrentName {
						current = "yes"
					}
					g.Row(r.Name, r.URL, current)
				}
			})
		},
	}
	output.Add(cmd)
	return cmd
}

func registryRemove(o *registryOptions) *cobra.Command {
	return &cobra.Command{
		Use:     "remove <name>",
		Short:   "Remove a registry name (its templates stay)",
		Example: `  buildnode registry remove old`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			names, err := o.namedRegistries()
			if err != nil {
				return err
			}
			return names.Remove(args[0])
		},
	}
}

var uuidPattern = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// findTemplate finds a registry's template by its ID or, when only one has it, by name.
func findTemplate(ctx context.Context, client *transfer.Client, name string) (api.TemplateDetail, error) {
	if uuidPattern.MatchString(name) {
		detail, err := client.TemplateDetail(ctx, strings.ToLower(name))
		if farm.CodeOf(err) == farm.CodeNotFound {
			return detail, templateNotFound(name)
		}
		return detail, err
	}
	list, err := client.ListTemplates(ctx)
	if err != nil {
		return api.TemplateDetail{}, err
	}
	var ids []string
	for _, t := range list {
		if t.Name == name {
			ids = append(ids, t.ID)
		}
	}
	switch len(ids) {
	case 0:
		return api.TemplateDetail{}, templateNotFound(name)
	case 1:
		return client.TemplateDetail(ctx, ids[0])
	}
	return api.TemplateDetail{}, farm.Refused("%d templates of the registry match %q; use an ID: %s", len(ids), name,
		strings.Join(ids, ", "))
}

func templateNotFound(name string) error {
	return farm.Errorf(farm.CodeNotFound, "Template %q not found in the registry; see: buildnode registry list", name)
}
