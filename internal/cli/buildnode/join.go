package buildnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/controllers"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/agent/nodeapi"
	"github.com/buildyard/buildyard/internal/bytesize"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/farm"
)

// JoinOptions are the options of a join.
type JoinOptions struct {
	DataDir        datadir.Dir
	ControllerURL  string    // URL
	OtherURLs      []string  // of other controllers of the same cloud
	Warnings       io.Writer // nil: none are written
	Token          string    // "": the node authenticates with the key or a certificate, or joins anonymously
	Name           string
	Host           string
	Groups         []string
	Capacity       int
	DiskReserve    string
	TLS            datadir.TLSFiles
	UpdateKeysFile string // file with the trusted keys of agent packages; "": those of the controller at the first join
	vlans          vlanFlags
	key            *joinKey // instead of the token; nil: none
}

func joinCommand(g *globals) *cobra.Command {
	o := JoinOptions{}
	token, own, asService := tokenOptions{}, keyOptions{}, false
	cmd := &cobra.Command{
		Use:   "join URL[,URL...]",
		Short: "Join this machine to a cloud",
		Long: `join registers this machine as a node at a controller and stores its identity in the data directory. The
join token is printed by "buildyard node token" on the controller's machine. With authentication an
API key or a certificate with the permission to configure nodes also works; a node port may admit
machines without credentials.
Several URLs are those of controllers of one cloud: the agent uses another one when one fails.

Joining again keeps the node ID, the instances and all settings that are not given: name, groups,
capacity, reserved space, VLANs, certificates, and the configuration by an operator. The controllers may have other
addresses: they then prove with the key of the cloud that they are part of it, and neither a token nor a
credential is needed.

Start the agent afterwards with "buildnode run", or install it as a service with --service.`,
		Example: `  buildnode join http://controller.example:8090 --token-file token
  buildyard node token | buildnode join http://127.0.0.1:8090 --token-file -
  buildnode join https://a.example:8090,https://b.example:8090 --token-file token --service
  buildnode join https://controller.example --ca-cert ca.pem --api-key-id nodes --api-key-file nodes.key
  buildnode join https://controller.example --token-file token --groups mac,fast --reserve-space 45GB --capacity 4`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if o.DataDir, err = g.openDataDir(); err != nil {
				return err
			}
			if asService {
				if err := (&ServiceOptions{globals: g}).checkUser(); err != nil {
					return err
				}
			}
			if o.Token, o.key, err = readCredential(token, own, g.In); err != nil {
				return err
			}
			urls := strings.Split(args[0], ",")
			o.ControllerURL, o.OtherURLs, o.Warnings = urls[0], urls[1:], g.Err
			identity, err := Join(cmd.Context(), o)
			if err != nil {
				return err
			}
			next := "; start the agent with: buildnode run"
			if asService {
				next = ""
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "joined as %s (%s)%s\n", identity.Name, identity.NodeID, next)
			if err != nil || !asService {
				return err
			}
			return g.installAfterJoin(cmd.Context())
		},
	}
	fs := cmd.Flags()
	token.add(cmd)
	fs.StringVar(&o.Name, "name", "", "name of the node (default: the host name)")
	fs.StringVar(&o.Host, "host", "", "address of the VMs on this node (default: the one that reaches the controller)")
	fs.StringSliceVar(&o.Groups, "groups", nil, "node groups, by name or ID")
	fs.IntVar(&o.Capacity, "capacity", 0, "maximum VMs (default: as set by the controller)")
	fs.StringVar(&o.DiskReserve, "reserve-space", "",
		`disk space that templates leave free, as 1024B, 10KB, 140MB, 45GB or 20% (default "20%")`)
	fs.StringVar(&o.UpdateKeysFile, "update-key", "",
		"file with the trusted public keys of agent packages (default: those of the controller at the first join)")
	addTLS(fs, &o.TLS, "controller")
	fs.BoolVar(&asService, "service", false,
		`install the agent as a service and start it, as "buildnode service install" does`)
	o.vlans.add(fs)
	own.add(fs)
	return cmd
}

// Join registers a node and stores its identity.
func Join(ctx context.Context, o JoinOptions) (datadir.Identity, error) {
	var none datadir.Identity
	lock, err := o.DataDir.Lock()
	if err != nil {
		return none, fmt.Errorf("%w; stop it before joining", err)
	}
	defer lock.Release()
	identity, err := o.identity()
	if err != nil {
		return none, err
	}
	keys, err := updateKeys(o.UpdateKeysFile)
	if err != nil {
		return none, err
	}
	isMove, err := o.checkMove(ctx, &identity)
	if err != nil {
		return none, err
	}
	if isMove && !o.changesSettings() {
		return identity, errors.Join(o.DataDir.SetIdentity(identity), o.DataDir.SetLastError(""))
	}
	given, err := o.register(ctx, &identity, isMove)
	if err != nil {
		return none, err
	}
	refused := o.checkOthers(ctx, &identity)
	if err := o.key.keep(o.DataDir, &identity); err != nil {
		return none, err
	}
	if err := trustKeys(o.DataDir, keys, given); err != nil {
		return none, err
	}
	if err := errors.Join(o.DataDir.SetIdentity(identity), o.DataDir.SetLastError("")); err != nil {
		return none, err
	}
	if refused != nil { // the token may be spent: what was achieved stays
		return none, fmt.Errorf("this node joined %s, and URLs were left out: %w", identity.ControllerURL, refused)
	}
	return identity, nil
}

// identity returns the node's earlier identity with the changes of the options.
func (o *JoinOptions) identity() (datadir.Identity, error) {
	id, err := o.DataDir.Identity()
	switch {
	case err != nil && farm.CodeOf(err) != farm.CodeNotFound:
		return id, err
	case err != nil:
		id.DiskReserve = bytesize.DefaultReserve
	}
	if o.DiskReserve != "" {
		if id.DiskReserve, err = bytesize.ParseReserve(o.DiskReserve); err != nil {
			return id, cli.Usage(err)
		}
	}
	if o.Capacity < 0 {
		return id, cli.Usage(farm.Invalid("capacity", "%d must not be negative", o.Capacity))
	}
	if id.Name = cmp.Or(o.Name, id.Name); id.Name == "" {
		if id.Name, err = os.Hostname(); err != nil {
			return id, fmt.Errorf("read the host name: %w; set --name", err)
		}
	}
	if o.Groups != nil {
		id.Groups = o.Groups
	}
	id.Capacity = cmp.Or(o.Capacity, id.Capacity)
	id.Host = o.Host
	given, err := o.TLS.Absolute()
	if err != nil {
		return id, err
	}
	id.TLS = id.TLS.With(given)
	return id, o.vlans.applyTo(&id)
}

// keptFields lists the fields that a rejoining node keeps.
func (o *JoinOptions) keptFields(identity datadir.Identity) []string {
	if identity.NodeID == "" {
		return nil
	}
	var fields []string
	for field, given := range map[string]bool{
		api.KeptName: o.Name != "", api.KeptHost: o.Host != "", api.KeptGroups: o.Groups != nil,
		api.KeptCapacity: o.Capacity != 0,
	} {
		if !given {
			fields = append(fields, field)
		}
	}
	slices.Sort(fields)
	return fields
}

// joinHost returns the address of the node's VMs. Unless it was configured it is
// looked up each time, since a host's address changes.
func joinHost(identity datadir.Identity) string {
	if identity.Host != "" {
		return identity.Host
	}
	return host.LocalAddressFor(identity.ControllerURL)
}

// requestJoin sends a join to the controller of an identity.
func (o *JoinOptions) requestJoin(ctx context.Context, identity datadir.Identity) (api.JoinAnswer, error) {
	client, err := controllerClient(identity)
	if err != nil {
		return api.JoinAnswer{}, err
	}
	if o.key != nil {
		authorize, err := o.key.authorizer(identity)
		if err != nil {
			return api.JoinAnswer{}, err
		}
		client = client.WithAuthorization(authorize)
	}
	return client.Join(ctx, api.JoinRequest{
		Protocol: api.LinkProtocol, Token: o.Token, NodeID: identity.NodeID, Credential: identity.Credential,
		Name: identity.Name, Host: joinHost(identity), Groups: identity.Groups, Capacity: identity.Capacity,
		Arch: runtime.GOARCH,
		Kept: o.keptFields(identity),
	})
}

// register joins the first controller that can be reached and stores its response in identity. It returns the keys that
// the controller's agent packages are signed with.
//
// A node that moves within its cloud keeps the key that it knows; another one takes that of its controller.
func (o *JoinOptions) register(
	ctx context.Context, identity *datadir.Identity, isMove bool,
) (updateKeys string, err error) {
	answer, err := o.requestJoin(ctx, *identity)
	var failed []controllers.Unreachable
	for _, other := range o.OtherURLs {
		if err == nil || !nodeapi.IsNotSent(err) {
			break
		}
		failed = append(failed, controllers.Unreachable{URL: identity.ControllerURL, Err: err})
		identity.ControllerURL = other
		answer, err = o.requestJoin(ctx, *identity)
	}
	if err != nil {
		o.warnUnreachable(failed...)
		return "", fmt.Errorf("join %s: %w", identity.ControllerURL, err)
	}
	identity.NodeID, identity.Credential, identity.RegistryAddress = answer.NodeID, answer.Credential, answer.Registry
	if !isMove {
		identity.Cloud.Key = ""
	}
	if identity.Cloud, err = controllers.WithAnnouncement(identity.Cloud, answer.Cloud); err != nil {
		return "", fmt.Errorf("join %s: %w", identity.ControllerURL, err)
	}
	return answer.UpdateKeys, nil
}
