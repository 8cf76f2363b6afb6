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

// keyAPI is the common part of controller and registry: API keys and permissions.
type keyAPI interface {
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
	_ keyAPI = (*client.Controller)(nil)
	_ keyAPI = (*client.Registry)(nil)
)

// addRegistryFlag lets a command call a registry instead of the controller.
func (a *Command) addRegistryFlag(cmd *cobra.Command) *cobra.Command {
	a.registryAddress = cmd.Flags().String("registry", "",
		"URL of a registry to call instead of the controller; disables contexts")
	cmd.MarkFlagsMutuallyExclusive("registry", "controller")
	cmd.MarkFlagsMutuallyExclusive("registry", "context")
	return cmd
}

// ignoreNotFound explains the error of a service that does not have a route.
func (a *Command) ignoreNotFound(err error, what, setting string) error {
	if client.CodeOf(err) != client.ErrUnsupported {
		return err
	}
	return fmt.Errorf("%s has no %s: its version is too old, or they are disabled (%s)", a.KeyAPI.Address(), what,
		setting)
}

func (a *Command) keyError(err error, id string) error {
	if errors.Is(err, client.ErrNotFound) && !cli.HasExitCode(err) {
		return cli.Exit(cli.ExitNotFound, fmt.Errorf("API key %q not found; see \"buildyard key list\"", id))
	}
	return a.ignoreNotFound(err, "API keys", "SVC_ENABLE_API_KEYS")
}

func keyCommand(s cli.Streams) *cobra.Command {
	return cli.Family(&cobra.Command{
		Use: "key", Aliases: []string{"keys"}, GroupID: CommandGroup,
		Short: "Manage API keys",
		Long: `key manages the API keys of a controller, or with --registry of a registry with separate keys. It
requires the root user. An API key has an ID, an expiration time and permission groups. Programs
authenticate with --api-key-id and --api-key-file.`,
		Example: `  buildyard key create ci --ttl 90d --groups builders --out ci.pem
  buildyard instance list --api-key-id ci --api-key-file ci.pem`,
	}, keyList(s), keyShow(s), keyCreate(s), keyUpdate(s), keyDelete(s))
}

var keyView = tableView[api.Key]{
	itemID: func(k api.Key) string { return k.ID },
	columns: []column[api.Key]{
		{title: "ID", value: func(k api.Key) any { return k.ID }},
		{title: "GROUPS", value: func(k api.Key) any { return strings.Join(k.Groups, ",") }},
		{title: "STATE", value: func(k api.Key) any { return keyState(k) }},
		{title: "EXPIRES", value: func(k api.Key) any { return timeText(k.Expiration) }},
		{title: "CREATED", value: func(k api.Key) any { return timeText(k.Created) }, wideOnly: true},
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
	{Name: "id", Text: func(k api.Key) string { return k.ID }, IsDefault: true},
	{Name: "group", Texts: func(k api.Key) []string { return k.Groups }, IsDefault: true},
	{Name: "state", Text: keyState, Values: []string{"active", "expired"}},
	{Name: "age", Age: func(k api.Key) time.Time { return k.Created }},
	{Name: "left", Duration: func(k api.Key) (float64, bool) {
		left := time.Until(k.Expiration).Seconds()
		return left, left > 0
	}},
}

func keyList(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var text string
	cmd := a.addRegistryFlag(a.addForItems(&cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List API keys", Args: cobra.NoArgs,
		Long: `list shows the API keys, also keys that expired less than a month ago, which can be renewed. Filter
fields: id, group, state (active, expired), age, and left, the time until the key expires.`,
		Example: `  buildyard key list --filter 'group:builders left<14d'
  buildyard key list --registry https://registry.example -o yaml`,
	}, func(cmd *cobra.Command, _ []string) error {
		narrow, err := keyFields.Parse(text)
		if err != nil {
			return cli.Usage(fmt.Errorf("--filter: %w", err))
		}
		got, err := callAPI(cmd.Context(), a.KeyAPI.Keys)
		if err == nil {
			got, err = filterList(got, func(k api.Key) bool { return narrow.Match(k, time.Now()) })
		}
		if err != nil {
			return a.keyError(err, "")
		}
		return printList(&a, got, keyView)
	}))
	cmd.Flags().StringVar(&text, "filter", "", "filter terms, such as 'state:expired'")
	return cmd
}

// filterList applies a filter to a list, both to the value and to the received body.
func filterList[T any](got response[[]T], fits func(T) bool) (response[[]T], error) {
	var raws []json.RawMessage
	if err := json.Unmarshal(got.raw, &raws); err != nil || len(raws) != len(got.value) {
		return got, errors.New("response is not a list")
	}
	var out response[[]T]
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

// keyIDs completes the IDs of keys for the first n arguments; n 0 is any number of them.
func keyIDs(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) (out []string, _ cobra.ShellCompDirective) {
		if n > 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		openKeyAPIForCompletion(cmd, func(ctx context.Context, store keyAPI) {
			all, _ := store.Keys(ctx) // without keys there is nothing to complete
			for _, k := range all {
				if strings.HasPrefix(k.ID, text) && len(out) < maxCompletions && cli.EscapeName(k.ID) == k.ID {
					out = append(out, k.ID+"\t"+cli.EscapeName(keyState(k)+" "+strings.Join(k.Groups, ",")))
				}
			}
		})
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

// openKeyAPIForCompletion opens the service that a command calls, for a completion.
func openKeyAPIForCompletion(cmd *cobra.Command, do func(ctx context.Context, store keyAPI)) {
	src, err := settingSources(cmd)
	if err != nil {
		return
	}
	var a Command
	if f := cmd.Flags().Lookup("registry"); f != nil {
		address := f.Value.String()
		a.registryAddress = &address
	}
	if a.openClient(src, client.NoRetries) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	do(ctx, a.KeyAPI)
}

func keyShow(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	return a.addRegistryFlag(a.addForItems(&cobra.Command{
		Use: "show KEY", Short: "Show an API key", Args: cobra.ExactArgs(1),
		Long:              `show prints an API key as the service has it, without the private key.`,
		Example:           `  buildyard key show ci`,
		ValidArgsFunction: keyIDs(1),
	}, func(cmd *cobra.Command, args []string) error {
		got, err := callAPI(cmd.Context(),
			func(ctx context.Context) (api.Key, error) { return a.KeyAPI.Key(ctx, args[0]) })
		if err != nil {
			return a.keyError(err, args[0])
		}
		return printOne(&a, got, got.value.ID, func(g *cli.Grid, k api.Key) { printDetails(g, keyView, k) })
	}))
}

// newKeyOptions are the options of a new key.
type newKeyOptions struct {
	ttl           string
	groups        []string
	publicKeyFile string
	outputFile    string
	pem           bool // write the private key as PEM
}

func keyCreate(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var o newKeyOptions
	cmd := a.addRegistryFlag(a.Add(&cobra.Command{
		Use: "create KEY", Short: "Create an API key", Args: cobra.ExactArgs(1),
		Long: `create creates an API key and prints its private key once: as one line of base64 on standard output, or
as PEM in the new private file --out. --pem and --pem=false select the format, which depends on the
plugin. The service does not store the private key. --public-key registers the public key of an
existing pair instead. The ID of an expired or deleted key can be used again.`,
		Example: `  buildyard key create ci --ttl 90d --groups builders,linux --out ci.pem
  buildyard key create ci --ttl 12h --public-key ci.pub.pem`,
	}, func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("pem") {
			o.pem = o.outputFile != ""
		}
		return a.createKey(cmd.Context(), args[0], o)
	}))
	fs := cmd.Flags()
	fs.BoolVar(&o.pem, "pem", false,
		"write the private key as PEM (default: true with --out, false on standard output)")
	fs.StringVar(&o.ttl, "ttl", "", "time to live in days such as 90d, or as a duration such as 12h")
	fs.StringSliceVar(&o.groups, "groups", nil, "permission groups of the key")
	fs.StringVar(&o.publicKeyFile, "public-key", "",
		"public key file of an existing pair (RSA, 2048 to 4096 bits, PEM or base64)")
	fs.StringVar(&o.outputFile, "out", "", "new file for the private key (default: standard output)")
	_ = cmd.MarkFlagRequired("ttl")
	cmd.MarkFlagsMutuallyExclusive("public-key", "out")
	cmd.MarkFlagsMutuallyExclusive("public-key", "pem")
	return cmd
}

// createKey creates the file before the key, since a private key is returned only once.
func (a *Command) createKey(ctx context.Context, id string, o newKeyOptions) error {
	k, err := o.request(id)
	if err != nil {
		return cli.Usage(err)
	}
	var file *os.File
	if o.outputFile != "" {
		if file, err = os.OpenFile(o.outputFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return cli.Usage(fmt.Errorf("--out: %w", err))
		}
		defer func() { _ = file.Close() }()
	}
	got, err := callAPI(ctx, func(ctx context.Context) (client.PrivateKey, error) { return a.KeyAPI.CreateKey(ctx, k) })
	private := got.value.Reveal()
	switch {
	case err != nil && file != nil:
		err = errors.Join(err, os.Remove(o.outputFile))
		return a.keyError(err, id)
	case err != nil:
		return a.keyError(err, id)
	case o.publicKeyFile != "":
		return a.printResults([]itemResult{{ID: id, Outcome: "created"}})
	case private == "":
		return fmt.Errorf("API key %q was created without a private key in the response; delete it and create another",
			id)
	case file == nil && (a.Output == cli.JSON || a.Output == cli.YAML):
		err = a.Output.WriteDocument(a.Out, got.raw)
	case file == nil:
		var text string
		if text, err = o.formatPrivateKey(private); err == nil {
			_, err = io.WriteString(a.Out, cli.EscapeText(text))
		}
	default:
		var text string
		if text, err = o.formatPrivateKey(private); err == nil {
			_, err = io.WriteString(file, text)
		}
		if err == nil {
			err = file.Sync()
		}
		if err == nil {
			return a.printResults([]itemResult{
				{ID: id, Outcome: "created", ErrorText: "private key written to " + o.outputFile},
			})
		}
	}
	if err != nil {
		return fmt.Errorf(
			"API key %q was created, but its private key could not be written; delete it and create another: %w", id,
			err)
	}
	_, _ = fmt.Fprintf(a.Err, "The private key of %s is shown only once\n", cli.EscapeName(id))
	return nil
}

// formatPrivateKey returns a private key, which the service answers as base64 of PKCS#1, in the requested
// format.
func (o newKeyOptions) formatPrivateKey(private string) (string, error) {
	if !o.pem {
		return private + "\n", nil
	}
	der, err := base64.StdEncoding.DecodeString(private)
	if err != nil {
		return "", errors.New("private key in the response is not base64")
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der})), nil
}

func (o newKeyOptions) request(id string) (api.NewKey, error) {
	k := api.NewKey{ID: id, Groups: o.groups}
	if k.Groups == nil {
		k.Groups = []string{}
	}
	var err error
	if k.TTL, err = ttlSeconds(o.ttl); err != nil {
		return k, err
	}
	if o.publicKeyFile != "" {
		k.PublicKey, err = readPublicKey(o.publicKeyFile)
	}
	return k, err
}

// parseTTL parses the time to live of a key or join token: days, or a duration of at least a second.
func parseTTL(text string) (time.Duration, error) {
	life, err := config.ParseDays(text)
	if err != nil || life < time.Second || strings.Trim(text, "0123456789") == "" {
		return 0, fmt.Errorf("invalid --ttl %q: want days such as 90d, or a duration such as 12h", text)
	}
	return life, nil
}

// ttlSeconds parses the time to live of a key.
func ttlSeconds(text string) (int64, error) {
	life, err := parseTTL(text)
	return int64(life / time.Second), err
}

// maxPublicKeyBytes bounds a file with a public key, in bytes.
const maxPublicKeyBytes = 64 << 10

// readPublicKey reads a public key into the form of the API: a line of base64.
func readPublicKey(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("--public-key: %w", err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxPublicKeyBytes))
	if err != nil {
		return "", fmt.Errorf("--public-key: %w", err)
	}
	block, _ := pem.Decode(raw)
	switch {
	case block == nil:
		return strings.Join(strings.Fields(string(raw)), ""), nil
	case block.Type != "PUBLIC KEY":
		return "", fmt.Errorf("--public-key: %s has a %s, want a public key (openssl rsa -in KEY -pubout)", file,
			strings.ToLower(block.Type))
	}
	return base64.StdEncoding.EncodeToString(block.Bytes), nil
}

func keyUpdate(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var ttl string
	var groups []string
	cmd := a.addRegistryFlag(a.Add(&cobra.Command{
		Use: "update KEY", Short: "Update an API key", Args: cobra.ExactArgs(1),
		Long: `update changes the expiration time or the permission groups of an API key. Existing sessions of the key
get the new groups.`,
		Example: `  buildyard key update ci --ttl 90d
  buildyard key update ci --groups builders,mac`,
		ValidArgsFunction: keyIDs(1),
	}, func(cmd *cobra.Command, args []string) (err error) {
		change := client.KeyChange{ID: args[0], Groups: append([]string{}, groups...)}
		regroup := cmd.Flags().Changed("groups")
		switch {
		case ttl == "" && !regroup:
			return cli.Usage(errors.New("no change given: --ttl or --groups is required"))
		case ttl != "":
			if change.TTL, err = ttlSeconds(ttl); err != nil {
				return cli.Usage(err)
			}
		}
		return a.printResults(runOnEach(cmd.Context(), args, "changed", func(ctx context.Context, id string) error {
			if !regroup { // the API replaces all groups
				now, err := a.KeyAPI.Key(ctx, id)
				if err != nil {
					return a.keyError(err, id)
				}
				change.Groups = append([]string{}, now.Groups...)
			}
			return a.keyError(a.KeyAPI.UpdateKey(ctx, change), id)
		}))
	}))
	cmd.Flags().StringVar(&ttl, "ttl", "", "time to live from now, in days such as 90d, or as a duration such as 12h")
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "permission groups of the key; replaces all")
	return cmd
}

func keyDelete(s cli.Streams) *cobra.Command {
	a := Command{Streams: s}
	var yes cli.Confirmation
	cmd := a.addRegistryFlag(a.Add(&cobra.Command{
		Use: "delete KEY...", Aliases: []string{"rm"}, Short: "Delete API keys", Args: cobra.MinimumNArgs(1),
		Long:              `delete removes API keys and ends their sessions immediately.`,
		Example:           `  buildyard key delete ci --yes`,
		ValidArgsFunction: keyIDs(0),
	}, func(cmd *cobra.Command, args []string) error {
		if err := yes.Ask(cmd.Context(), a.Streams, "Delete the API keys %s?", strings.Join(args, ", ")); err != nil {
			return err
		}
		return a.printResults(runOnEach(cmd.Context(), args, "deleted", func(ctx context.Context, id string) error {
			return a.keyError(a.KeyAPI.DeleteKey(ctx, id), id)
		}))
	}))
	yes.Add(cmd)
	return cmd
}
