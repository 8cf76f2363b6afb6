package cloud

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
)

// Command is the common part of every command that calls a controller.
type Command struct {
	cli.Streams
	Output cli.Format

	API *client.Controller // set before the command runs

	registry *string // address of the registry to ask instead; nil: the command has no such option
	Keys     keyStore
	as       Caller
}

// run is the work of a command once its options are read.
type run func(cmd *cobra.Command, args []string) error

// Add adds the common options to a command that calls a controller, and runs do after reading them.
func (a *Command) Add(cmd *cobra.Command, do func(cmd *cobra.Command, args []string) error) *cobra.Command {
	a.Output.Add(cmd)
	return a.add(cmd, do)
}

// addAll is Add for a command that shows items which have IDs.
func (a *Command) addAll(cmd *cobra.Command, do run) *cobra.Command {
	a.Output.AddAll(cmd)
	return a.add(cmd, do)
}

func (a *Command) add(cmd *cobra.Command, do run) *cobra.Command {
	cli.AddFlags(cmd.Flags(), config.ClientTable)
	_ = cmd.RegisterFlagCompletionFunc("context", completeContexts)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		src, err := sources(cmd)
		if err != nil {
			return cli.Usage(err)
		}
		src.In = a.In
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return cli.PrintConfig(a.Out, config.ClientTable, src)
		}
		if err := a.open(src, 1); err != nil {
			return cli.Usage(err)
		}
		return Explained(cmd.Context(), do(cmd, args), a.asked())
	}
	return cmd
}

// sources returns the sources of the settings of a client command.
func sources(cmd *cobra.Command) (config.Sources, error) {
	return chooseContext(cli.Sources(cmd.Flags()))
}

// open creates the client of the controller.
func (a *Command) open(src config.Sources, retries int) error {
	v, err := config.Load(config.ClientTable, src)
	if err != nil {
		return err
	}
	o, as, err := Options(v)
	if err != nil {
		return err
	}
	o.Retries, a.as = retries, as
	if a.registry != nil && *a.registry != "" {
		registry, err := client.NewRegistry(*a.registry, o)
		a.Keys = registry
		return err
	}
	a.API, err = client.NewController(v.String(config.Controller), o)
	a.Keys = a.API
	return err
}

// Options returns the client options in the settings, and the caller of its credentials.
func Options(v *config.Values) (o client.Options, as Caller, err error) {
	o = client.Options{UserAgent: "buildyard", TLS: client.TLS{
		CAFile: v.String(config.TrustedCA), CertFile: v.String(config.ClientCert), KeyFile: v.String(config.ClientKey),
		SkipVerify: v.Bool(config.SkipVerification),
	}}
	if err := privateKey(o.TLS.KeyFile); err != nil {
		return o, as, err
	}
	o.Credentials, as, err = credentials(v)
	return o, as, err
}

// Target is the service that a command has called, and its caller.
type Target struct {
	Flag, Key string // with its address; Key "": only the flag
	As        Caller
}

// where names the flag or setting with the service's address.
func (a Target) where() string {
	if a.Key == "" {
		return a.Flag
	}
	return a.Flag + " or " + a.Key
}

func (a *Command) asked() Target {
	if a.registry != nil && *a.registry != "" {
		return Target{Flag: "--registry", As: a.as}
	}
	return Target{"--controller", config.Controller, a.as}
}

// exits maps failures of calls to exit codes.
var exits = map[client.Code]int{
	client.ErrNotFound:        cli.ExitNotFound,
	client.ErrNoVersion:       cli.ExitNotFound,
	client.ErrInvalid:         cli.ExitUsage,
	client.ErrUnauthenticated: cli.ExitDenied,
	client.ErrForbidden:       cli.ExitDenied,
	client.ErrUnreachable:     cli.ExitUnreachable,
	client.ErrUnavailable:     cli.ExitUnreachable,
	client.ErrForeign:         cli.ExitUnreachable,
}

// Explained adds an exit code to an error and, when the service does not answer, what to check: the
// flag and the setting with its address.
func Explained(ctx context.Context, err error, asked Target) error {
	if err == nil || cli.WithExitCode(err) {
		return err
	}
	if ctx.Err() != nil {
		return cutShort(ctx, err, "")
	}
	code, known := exits[client.CodeOf(err)]
	if !known {
		return err
	}
	e, _ := errors.AsType[*client.Error](err)
	switch e.Code {
	case client.ErrUnreachable:
		what, _, _ := strings.Cut(e.Message, " cannot be reached")
		err = fmt.Errorf("%s cannot be reached: %s: %w", what, advice(e.Cause(), asked.where()), e.Cause())
	case client.ErrForeign:
		ask := "check the address"
		if e.Status == http.StatusBadRequest {
			ask = "check the address, and whether it requires https"
		}
		err = fmt.Errorf("%w: %s (%s)", err, ask, asked.where())
	case client.ErrUnauthenticated:
		err = asked.As.unauthenticated(e, err)
	case client.ErrForbidden:
		err = asked.As.forbidden(err)
	}
	return cli.Exit(code, err)
}

// advice returns what to check when a service cannot be reached.
func advice(cause error, where string) string {
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](cause)
	_, plain := errors.AsType[tls.RecordHeaderError](cause)
	text := fmt.Sprint(cause)
	switch {
	case untrusted:
		return fmt.Sprintf("certificate not trusted; set its CA with --ca-cert or %s", config.TrustedCA)
	case plain, strings.Contains(text, "HTTP response to HTTPS client"):
		return fmt.Sprintf("the service does not use HTTPS; want an address with http:// (%s)", where)
	case strings.Contains(text, "remote error: tls: "):
		return fmt.Sprintf("client certificate rejected; check --client-cert and --client-key, or %s and %s",
			config.ClientCert, config.ClientKey)
	}
	return fmt.Sprintf("check that it runs and that the address is right (%s)", where)
}

// answer is the result of a call, as a value and as received.
type answer[T any] struct {
	raw   json.RawMessage
	value T
}

// ask makes a call and keeps the body of its answer.
func ask[T any](ctx context.Context, do func(context.Context) (T, error)) (answer[T], error) {
	var out answer[T]
	var err error
	out.value, err = do(client.KeepBody(ctx, &out.raw))
	return out, err
}

// interrupted reports that a stream was interrupted and is resumed.
func (a *Command) interrupted(err error) {
	_, _ = fmt.Fprintf(a.Err, "%s; retrying\n", cli.Plain(err.Error()))
}
