package cloud

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/filter"
)

// keyStore is what controller and registry have in common: keys and rights of their own.
type keyStore interface {
	Address() string
	Keys(ctx context.Context) ([]api.Key, error)
	Key(ctx context.Context, id string) (api.Key, error)
	CreateKey(ctx context.Context, k api.NewKey) (client.PrivateKey, error)
	UpdateKey(ctx context.Context, k client.KeyChange) error
	DeleteKey(ctx context.Context, id string) error
	Permissions(ctx context.Context) ([]api.Permission, error)
	PermissionGroups(ctx context.Context) ([]api.PermissionGroup, error)
	PermissionGroup(ctx context.Context, name string) (api.PermissionGroup, error)
	SetPermissionGroup(ctx context.Context, g api.PermissionGroup) error
	DeletePermissionGroup(ctx context.Context, name string) error
	ResourcePermissions(ctx context.Context) ([]api.ResourcePermissions, error)
	Resources(ctx context.Context, group string) ([]api.Resource, error)
	SetResources(ctx context.Context, group string, all []api.Resource) error
}

var (
	_ keyStore = (*client.Controller)(nil)
	_ keyStore = (*client.Registry)(nil)
)

// ofEither lets a command call a registry instead of the controller.
func (a *Command) ofEither(cmd *cobra.Command) *cobra.Command {
	a.registry = cmd.Flags().String("registry", "", "address of a registry to ask instead of the controller; contexts are left out then")
	cmd.MarkFlagsMutuallyExclusive("registry", "controller")
	cmd.MarkFlagsMutuallyExclusive("registry", "context")
	return cmd
}

// without404 explains the error of a service that does not have a route.
func (a *Command) without404(err error, what, setting string) error {
	if client.CodeOf(err) != client.ErrUnsupported {
		return err
	}
	return fmt.Errorf("%s has no %s: its version is older, or they are switched off there (%s)", a.Keys.Address(), what, setting)
}

func (a *Command) keyError(err error, id string) error {
	if errors.Is(err, client.ErrNotFound) && !cli.WithExitCode(err) {
		return cli.Exit(cli.ExitNotFound, fmt.Errorf("there is no user key %q: \"buildyard key list\" shows them", id))
	}
	return a.without404(err, "user keys", "SVC_ENABLE_API_KEYS")
}

func keyCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "key", Aliases: []string{"keys"}, GroupID: Group,
		Short: "User keys",
		Long: `key makes and changes the user keys of a controller, or with --registry of a registry that has
keys of its own. The root user alone may. A key is known by its id, has an end, and is in
permission groups. Programs show it with --key-id and --key-file.`,
		Example: `  buildyard key create ci --ttl 90d --groups builders --out ci.pem
  buildyard instance list --key-id ci --key-file ci.pem`,
	}, keyList(s), keyShow(s), keyCreate(s), keyUpdate(s), keyDelete(s))
}

var keyView = view[api.Key]{
	id: func(k api.Key) string { return k.ID },
	columns: []column[api.Key]{
		{head: "ID", cell: func(k api.Key) any { return k.ID }},
		{head: "GROUPS", cell: func(k api.Key) any { return strings.Join(k.Groups, ",") }},
		{head: "STATE", cell: func(k api.Key) any { return keyState(k) }},
		{head: "EXPIRES", cell: func(k api.Key) any { return when(k.Expiration) }},
		{head: "CREATED", cell: func(k api.Key) any { return when(k.Created) }, wide: true},
	},
}

func keyState(k api.Key) string {
	if time.Now().Before(k.Expiration) {
		return "active"
	}
	return "expired"
}

// keyFields are what keys can be filtered by. The API has no filter for them.
var keyFields = filter.Table[api.Key]{
	{Name: "id", Text: func(k api.Key) string { return k.ID }, Called: true},
	{Name: "group", Texts: func(k api.Key) []string { return k.Groups }},
	{Name: "state", Text: keyState},
	{Name: "age", Since: func(k api.Key) time.Time { return k.Created }},
	{Name: "left", Length: func(k api.Key) (float64, bool) {
		left := time.Until(k.Expiration).Seconds()
		return left, left > 0
	}},
}

func keyList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var text string
	cmd := a.ofEither(a.addAll(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the user keys", Args: cobra.NoArgs,
		Long: `list shows the user keys; those that have expired for a month, so that they can be prolonged.
A filter knows id, group, state (active, expired), age, and left, the time until the key expires.`,
		Example: `  buildyard key list --filter 'group:builders left<14d'
  buildyard key list --registry https://registry.example -o yaml`,
	}, func(cmd *cobra.Command, _ []string) error {
		narrow, err := keyFields.Parse(text)
		if err != nil {
			return cli.Usage(fmt.Errorf("--filter: %w", err))
		}
		got, err := ask(cmd.Context(), a.Keys.Keys)
		if err == nil {
			got, err = narrowed(got, func(k api.Key) bool { return narrow.Match(k, time.Now()) })
		}
		if err != nil {
			return a.keyError(err, "")
		}
		return list(&a, got, keyView)
	}))
	cmd.Flags().StringVar(&text, "filter", "", "only what matches all of these terms, such as 'state:expired'")
	return cmd
}

// narrowed leaves of a list what fits, in the value and in the body as it came.
func narrowed[T any](got answer[[]T], fits func(T) bool) (answer[[]T], error) {
	var raws []json.RawMessage
	if err := json.Unmarshal(got.raw, &raws); err != nil || len(raws) != len(got.value) {
		return got, errors.New("the answer is no list")
	}
	var out answer[[]T]
	kept := []json.RawMessage{}
	for i, item := range got.value {
		if fits(item) {
			out.value, kept = append(out.value, item), append(kept, raws[i])
		}
	}
	var err error
	out.raw, err = json.Marshal(kept)
	return out, err
}

// keyIDs offers the ids of keys for the first n arguments; n 0 is any number of them.
func keyIDs(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) (out []string, _ cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		eitherCompleting(cmd, func(ctx context.Context, store keyStore) {
			all, _ := store.Keys(ctx) // none are none to offer
			for _, k := range all {
				if strings.HasPrefix(k.ID, text) && len(out) < completions && cli.Plain(k.ID) == k.ID {
					out = append(out, k.ID+"\t"+cli.Plain(keyState(k)+" "+strings.Join(k.Groups, ",")))
				}
			}
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// eitherCompleting opens the service that a command calls, for a completion.
func eitherCompleting(cmd *cobra.Command, do func(ctx context.Context, store keyStore)) {
	src, err := sources(cmd)
	if err != nil {
		return
	}
	var a Command
	if f := cmd.Flags().Lookup("registry"); f != nil {
		address := f.Value.String()
		a.registry = &address
	}
	if a.open(src, client.NoRetries) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	do(ctx, a.Keys)
}

func keyShow(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.ofEither(a.addAll(&cobra.Command{
		Use: "show KEY", Short: "Show a user key", Args: cobra.ExactArgs(1),
		Long:              `show tells what a service knows of a user key. The private key is not known there.`,
		Example:           `  buildyard key show ci`,
		ValidArgsFunction: keyIDs(1),
	}, func(cmd *cobra.Command, args []string) error {
		got, err := ask(cmd.Context(), func(ctx context.Context) (api.Key, error) { return a.Keys.Key(ctx, args[0]) })
		if err != nil {
			return a.keyError(err, args[0])
		}
		return single(&a, got, got.value.ID, func(g *cli.Grid, k api.Key) { details(g, keyView, k) })
	}))
}

// newKey are the options of a key that is made.
type newKey struct {
	ttl    string
	groups []string
	public string
	out    string
	pem    bool // write the private key as PEM
}

func keyCreate(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o newKey
	cmd := a.ofEither(a.Add(&cobra.Command{
		Use: "create KEY", Short: "Create an API key", Args: cobra.ExactArgs(1),
		Long: `create makes a user key and gives its private key once: on the standard output as one line of
base64, or with --out in a new file that only you can read, as PEM. --pem and --pem=false choose
the form: some plugins take one, some the other. The service does not keep it. With --public-key the pair is
one that you have made, and the private key stays where it is. An id is free again when its key
has expired or was deleted.`,
		Example: `  buildyard key create ci --ttl 90d --groups builders,linux --out ci.pem
  buildyard key create ci --ttl 12h --public-key ci.pub.pem`,
	}, func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("pem") {
			o.pem = o.out != ""
		}
		return a.createKey(cmd.Context(), args[0], o)
	}))
	fs := cmd.Flags()
	fs.BoolVar(&o.pem, "pem", false, "write the private key as PEM (default: with --out, but not on the standard output)")
	fs.StringVar(&o.ttl, "ttl", "", "how long it is good: days such as 90d, or a duration such as 12h")
	fs.StringSliceVar(&o.groups, "groups", nil, "permission groups that it is in")
	fs.StringVar(&o.public, "public-key", "", "file with the public key of a pair of yours (RSA of 2048 to 4096 bits, PEM or a line of base64)")
	fs.StringVar(&o.out, "out", "", "new file for the private key (default: the standard output)")
	_ = cmd.MarkFlagRequired("ttl")
	cmd.MarkFlagsMutuallyExclusive("public-key", "out")
	cmd.MarkFlagsMutuallyExclusive("public-key", "pem")
	return cmd
}

// createKey makes the file before the key, since a private key cannot be had twice.
func (a *Command) createKey(ctx context.Context, id string, o newKey) error {
	k, err := o.request(id)
	if err != nil {
		return cli.Usage(err)
	}
	var file *os.File
	if o.out != "" {
		if file, err = os.OpenFile(o.out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return cli.Usage(fmt.Errorf("--out: %w", err))
		}
		defer func() { _ = file.Close() }()
	}
	got, err := ask(ctx, func(ctx context.Context) (client.PrivateKey, error) { return a.Keys.CreateKey(ctx, k) })
	private := got.value.Reveal()
	switch {
	case err != nil && file != nil:
		err = errors.Join(err, os.Remove(o.out))
		return a.keyError(err, id)
	case err != nil:
		return a.keyError(err, id)
	case o.public != "":
		return a.outcome([]result{{ID: id, Result: "created"}})
	case private == "":
		return fmt.Errorf("the key %q was made, but the service did not answer its private key: delete it and make another", id)
	case file == nil && (a.Output == cli.JSON || a.Output == cli.YAML):
		err = a.Output.Document(a.Out, got.raw)
	case file == nil:
		var text string
		if text, err = o.text(private); err == nil {
			_, err = io.WriteString(a.Out, cli.PlainText(text))
		}
	default:
		var text string
		if text, err = o.text(private); err == nil {
			_, err = io.WriteString(file, text)
		}
		if err == nil {
			err = file.Sync()
		}
		if err == nil {
			return a.outcome([]result{{ID: id, Result: "created", Why: "its private key is in " + o.out}})
		}
	}
	if err != nil {
		return fmt.Errorf("the key %q was made, but its private key could not be written: delete it and make another: %w", id, err)
	}
	_, _ = fmt.Fprintf(a.Err, "the private key of %s is shown this once\n", cli.Plain(id))
	return nil
}

// text returns a private key, which the service answers as base64 of PKCS#1, in the requested
// format.
func (o newKey) text(private string) (string, error) {
	if !o.pem {
		return private + "\n", nil
	}
	der, err := base64.StdEncoding.DecodeString(private)
	if err != nil {
		return "", errors.New("the service answered a private key that is no base64")
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der})), nil
}

func (o newKey) request(id string) (api.NewKey, error) {
	k := api.NewKey{ID: id, Groups: o.groups}
	if k.Groups == nil {
		k.Groups = []string{}
	}
	var err error
	if k.TTL, err = ttlSeconds(o.ttl); err != nil {
		return k, err
	}
	if o.public != "" {
		k.PublicKey, err = publicKey(o.public)
	}
	return k, err
}

// ttlSeconds reads the life of a key.
func ttlSeconds(text string) (int64, error) {
	if strings.Trim(text, "0123456789") == "" {
		return 0, fmt.Errorf("--ttl %q lacks its unit: give days such as 90d, or a duration such as 12h", text)
	}
	life, err := config.ParseDays(text)
	if err != nil || life < time.Second {
		return 0, fmt.Errorf("--ttl %q: give days such as 90d, or a duration such as 12h", text)
	}
	return int64(life / time.Second), nil
}

// maxPublicKey bounds a file with a public key, in bytes.
const maxPublicKey = 64 << 10

// publicKey reads a public key into the form of the API: a line of base64.
func publicKey(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("--public-key: %w", err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxPublicKey))
	if err != nil {
		return "", fmt.Errorf("--public-key: %w", err)
	}
	block, _ := pem.Decode(raw)
	switch {
	case block == nil:
		return strings.Join(strings.Fields(string(raw)), ""), nil
	case block.Type != "PUBLIC KEY":
		return "", fmt.Errorf("--public-key: %s holds a %s: give the public key (openssl rsa -in KEY -pubout)", file, strings.ToLower(block.Type))
	}
	return base64.StdEncoding.EncodeToString(block.Bytes), nil
}

func keyUpdate(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var ttl string
	var groups []string
	cmd := a.ofEither(a.Add(&cobra.Command{
		Use: "update KEY", Short: "Change a user key", Args: cobra.ExactArgs(1),
		Long: `update changes how long a user key is good from now on, or the permission groups that it is in.
What is not given stays. Sessions of the key go on with what it has now.`,
		Example: `  buildyard key update ci --ttl 90d
  buildyard key update ci --groups builders,mac`,
		ValidArgsFunction: keyIDs(1),
	}, func(cmd *cobra.Command, args []string) (err error) {
		change := client.KeyChange{ID: args[0], Groups: append([]string{}, groups...)}
		regroup := cmd.Flags().Changed("groups")
		switch {
		case ttl == "" && !regroup:
			return cli.Usage(errors.New("give what is to change: --ttl or --groups"))
		case ttl != "":
			if change.TTL, err = ttlSeconds(ttl); err != nil {
				return cli.Usage(err)
			}
		}
		return a.outcome(each(cmd.Context(), args, "changed", func(ctx context.Context, id string) error {
			if !regroup { // the API wants all groups each time
				now, err := a.Keys.Key(ctx, id)
				if err != nil {
					return a.keyError(err, id)
				}
				change.Groups = append([]string{}, now.Groups...)
			}
			return a.keyError(a.Keys.UpdateKey(ctx, change), id)
		}))
	}))
	cmd.Flags().StringVar(&ttl, "ttl", "", "how long it is good from now on: days such as 90d, or a duration such as 12h")
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "permission groups that it is in, all of them")
	return cmd
}

func keyDelete(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var yes cli.Confirmation
	cmd := a.ofEither(a.Add(&cobra.Command{
		Use: "delete KEY...", Aliases: []string{"rm"}, Short: "Remove user keys", Args: cobra.MinimumNArgs(1),
		Long:              `delete removes user keys and ends their sessions at once.`,
		Example:           `  buildyard key delete ci --yes`,
		ValidArgsFunction: keyIDs(0),
	}, func(cmd *cobra.Command, args []string) error {
		if err := yes.Ask(cmd.Context(), a.Streams, "Remove the user keys %s?", strings.Join(args, ", ")); err != nil {
			return err
		}
		return a.outcome(each(cmd.Context(), args, "deleted", func(ctx context.Context, id string) error {
			return a.keyError(a.Keys.DeleteKey(ctx, id), id)
		}))
	}))
	yes.Add(cmd)
	return cmd
}
