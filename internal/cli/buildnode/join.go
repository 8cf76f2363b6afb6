package buildnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/home"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/agent/link"
	"github.com/buildyard/buildyard/internal/agent/size"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// JoinOptions are the options of a join.
type JoinOptions struct {
	Home       home.Home
	Controller string // URL
	Token      string
	Name       string
	Host       string
	Groups     []string
	Capacity   int
	Reserve    string
	TLS        home.TLS
	keys       keyOptions
}

func joinCommand(g *globals) *cobra.Command {
	o := JoinOptions{}
	cmd := &cobra.Command{
		Use:   "join CONTROLLER",
		Short: "Make this machine a node of a cloud",
		Long: `join registers this machine at a controller and keeps what it answers in the data
directory. The token is what "buildyard node token" prints on the controller's machine.
Joining again with the same data directory keeps the node's id, groups and instances.
Start the agent afterwards with "buildnode run".`,
		Example: `  buildnode join http://controller.example:8090 --token 3f2a...
  buildnode join https://controller.example --token 3f2a... --groups mac,fast --reserve-space 45GB --capacity 4`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.Home, err = g.home(); err != nil {
				return err
			}
			o.Controller = args[0]
			identity, err := Join(cmd.Context(), o)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "joined as %s (%s); start the agent with: buildnode run\n", identity.Name, identity.NodeID)
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Token, "token", "", "join token of the cloud (required, or a key)")
	fs.StringVar(&o.Name, "name", "", "name of the node (default: the host name)")
	fs.StringVar(&o.Host, "host", "", "address under which the node's VMs are reached (default: the one towards the controller)")
	fs.StringSliceVar(&o.Groups, "groups", nil, "node groups, by name or id")
	fs.IntVar(&o.Capacity, "capacity", 0, "VMs that may run at once (default: the controller's)")
	fs.StringVar(&o.Reserve, "reserve-space", "", `disk that stays free of templates, as 1024B, 10KB, 140MB, 45GB or 20% (default "20%")`)
	addTLS(fs, &o.TLS)
	o.keys.add(fs)
	return cmd
}

// Join registers a node and keeps its identity.
func Join(ctx context.Context, o JoinOptions) (home.Identity, error) {
	var none home.Identity
	if err := o.keys.refuse(); err != nil {
		return none, err
	}
	if o.Token == "" {
		return none, cli.Usage(errors.New(`--token is required; "buildyard node token" prints it on the controller's machine`))
	}
	reserve, err := size.ParseReserve(o.Reserve)
	if err != nil {
		return none, cli.Usage(err)
	}
	if err := o.Home.Make(); err != nil {
		return none, err
	}
	lock, err := o.Home.Lock()
	if err != nil {
		return none, err
	}
	defer lock.Release()
	identity, err := o.Home.Identity()
	if err != nil && farm.CodeOf(err) != farm.CodeNotFound {
		return none, err
	}
	identity.Controller, identity.Groups, identity.Capacity, identity.Reserve, identity.TLS = o.Controller, o.Groups, o.Capacity, reserve, o.TLS
	if identity.Name = o.Name; identity.Name == "" {
		if identity.Name, err = os.Hostname(); err != nil {
			return none, fmt.Errorf("host name: %w; give --name", err)
		}
	}
	if identity.Host = o.Host; identity.Host == "" {
		identity.Host = host.AddressTowards(o.Controller)
	}
	if err := register(ctx, &identity, o.Token); err != nil {
		return none, err
	}
	return identity, o.Home.SetIdentity(identity)
}

// register asks the controller, and takes over what it answers.
func register(ctx context.Context, identity *home.Identity, token string) error {
	client, err := controllerClient(*identity)
	if err != nil {
		return err
	}
	answer, err := client.Join(ctx, api.JoinRequest{
		Protocol: api.LinkProtocol, Token: token, NodeID: identity.NodeID, Credential: identity.Credential,
		Name: identity.Name, Host: identity.Host, Groups: identity.Groups, Capacity: identity.Capacity, Arch: runtime.GOARCH,
	})
	if farm.CodeOf(err) == farm.CodeUnauthenticated {
		return errors.New(`the controller does not accept the token; "buildyard node token" prints the right one`)
	}
	if err != nil {
		return fmt.Errorf("join %s: %w", identity.Controller, err)
	}
	identity.NodeID, identity.Credential, identity.Registry = answer.NodeID, answer.Credential, answer.Registry
	return nil
}

func controllerClient(identity home.Identity) (*link.Client, error) {
	config, err := transfer.TLSConfig(transfer.TLSOptions{
		Insecure: identity.TLS.Insecure, Cert: identity.TLS.Cert, Key: identity.TLS.Key, CA: identity.TLS.CA,
	})
	if err != nil {
		return nil, err
	}
	return link.New(identity.Controller, link.Transport(config, 1), identity.Credential)
}

func disjoinCommand(g *globals) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "disjoin",
		Short: "Take this machine out of its cloud",
		Long: `disjoin removes the node at its controller and forgets its identity. Stop the agent
first. Instances that still run on the node end in Error; --force forgets the identity
also when the controller cannot be reached.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := g.home()
			if err != nil {
				return err
			}
			return disjoin(cmd.Context(), dir, force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "forget the identity also when the controller cannot be reached")
	return cmd
}

func disjoin(ctx context.Context, dir home.Home, force bool) error {
	identity, err := dir.Identity()
	if err != nil {
		return err
	}
	lock, err := dir.Lock()
	if err != nil {
		return err
	}
	defer lock.Release()
	client, err := controllerClient(identity)
	if err != nil {
		return err
	}
	err = client.Disjoin(ctx, identity.NodeID)
	gone := farm.CodeOf(err) == farm.CodeUnauthenticated // it was removed there before
	if err != nil && !gone && !force {
		return fmt.Errorf("leave %s: %w (--force forgets it here all the same)", identity.Controller, err)
	}
	return dir.ClearIdentity()
}
