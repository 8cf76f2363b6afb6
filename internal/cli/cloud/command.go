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

	API     *client.Controller // set before the command runs
	Options client.Options     // of the API's client, likewise
	Secrets []string           // of the settings, likewise

	registryAddress *string // address of the registry to ask instead; nil: the command has no such option
	KeyAPI          keyAPI
	caller          Caller
}

// commandFunc is the work of a command once its options are read.
type commandFunc func(cmd *cobra.Command, args []string) error

// Add adds the common options to a command that calls a controller, and runs do after reading them.
func (a *Command) Add(cmd *cobra.Command, do func(cmd *cobra.Command, args []string) error) *cobra.Command {
	a.Output.Add(cmd)
	return a.add(cmd, do)
}

// addForItems is Add for a command that shows items which have IDs.
func (a *Command) addForItems(cmd *cobra.Command, do commandFunc) *cobra.Command {
	a.Output.AddAll(cmd)
	return a.add(cmd, do)
}

func (a *Command) add(cmd *cobra.Command, do commandFunc) *cobra.Command {
	cli.AddFlags(cmd.Flags(), config.ClientTable)
	_ = cmd.RegisterFlagCompletionFunc("context", completeContexts)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		src, err := settingSources(cmd)
		if err != nil {
			return cli.Usage(err)
		}
		src.Stdin = a.In
		if show, _ := cmd.Flags().GetBool("print-config"); show {
			return cli.PrintConfig(a.Out, config.ClientTable, src)
		}
		if err := a.openClient(src, 1); err != nil {
			return cli.Usage(err)
		}
		return WithAdvice(cmd.Context(), do(cmd, args), a.target())
	}
	return cmd
}

// settingSources returns the sources of the settings of a client command.
func settingSources(cmd *cobra.Command) (config.Sources, error) {
	return chooseContext(cli.Sources(cmd.Flags()))
}

// openClient creates the client of the controller.
func (a *Command) openClient(src config.Sources, retries int) error {
	v, err := config.Load(config.ClientTable, src)
	if err != nil {
		return err
	}
	o, as, err := ClientOptions(v)
	if err != nil {
		return err
	}
	o.Retries, a.caller = retries, as
	a.Options, a.Secrets = o, v.Secrets()
	if a.registryAddress != nil && *a.registryAddress != "" {
		registry, err := client.NewRegistry(*a.registryAddress, o)
		a.KeyAPI = registry
		return err
	}
	a.API, err = client.NewController(v.String(config.Controller), o)
	a.KeyAPI = a.API
	return err
}

// ClientOptions returns the client options in the settings, and the caller of its credentials.
func ClientOptions(v *config.Values) (o client.Options, as Caller, err error) {
	o = client.Options{UserAgent: "buildyard", TLS: client.TLS{
		CAFile: v.String(config.TrustedCA), CertFile: v.String(config.ClientCert), KeyFile: v.String(config.ClientKey),
		SkipVerify: v.Bool(config.SkipVerification),
	}}
	if err := checkPrivateKeyFile(o.TLS.KeyFile); err != nil {
		return o, as, err
	}
	o.Credentials, as, err = credentials(v)
	return o, as, err
}

// Target is the service that a command has called, and its caller.
type Target struct {
	Flag, Setting string // with its address; Key "": only the flag
	Caller        Caller
}

// addressSource names the flag or setting with the service's address.
func (a Target) addressSource() string {
	if a.Setting == "" {
		return a.Flag
	}
	return a.Flag + " or " + a.Setting
}

func (a *Command) target() Target {
	if a.registryAddress != nil && *a.registryAddress != "" {
		return Target{Flag: "--registry", Caller: a.caller}
	}
	return Target{"--controller", config.Controller, a.caller}
}

// exitCodes maps failures of calls to exit codes.
var exitCodes = map[client.Code]int{
	client.ErrNotFound:        cli.ExitNotFound,
	client.ErrNoVersion:       cli.ExitNotFound,
	client.ErrInvalid:         cli.ExitUsage,
	client.ErrUnauthenticated: cli.ExitDenied,
	client.ErrForbidden:       cli.ExitDenied,
	client.ErrUnreachable:     cli.ExitUnreachable,
	client.ErrUnavailable:     cli.ExitUnreachable,
	client.ErrForeign:         cli.ExitUnreachable,
}

// WithAdvice adds an exit code to an error and, when the service does not answer, what to check: the
// flag and the setting with its address.
func WithAdvice(ctx context.Context, err error, asked Target) error {
	if err == nil || cli.HasExitCode(err) {
		return err
	}
	if ctx.Err() != nil {
		return interruptedError(ctx, err, "")
	}
	return advise(err, asked)
}

// advise is WithAdvice for a call that its caller has not ended.
func advise(err error, asked Target) error {
	code, known := exitCodes[client.CodeOf(err)]
	if !known {
		return err
	}
	e, _ := errors.AsType[*client.Error](err)
	switch e.Code {
	case client.ErrUnreachable:
		what, _, _ := strings.Cut(e.Message, " cannot be reached")
		err = fmt.Errorf("%s cannot be reached: %s: %w", what, unreachableAdvice(e.Cause(), asked.addressSource()),
			e.Cause())
	case client.ErrForeign:
		ask := "check the address"
		if e.Status == http.StatusBadRequest {
			ask = "check the address, and whether it requires https"
		}
		err = fmt.Errorf("%w: %s (%s)", err, ask, asked.addressSource())
	case client.ErrUnauthenticated:
		err = asked.Caller.unauthenticated(e, err)
	case client.ErrForbidden:
		err = asked.Caller.forbidden(err)
	}
	return cli.Exit(code, err)
}

// unreachableAdvice returns what to check when a service cannot be reached.
func unreachableAdvice(cause error, where string) string {
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

// response is the result of a call, as a value and as received.
type response[T any] struct {
	raw   json.RawMessage
	value T
}

// callAPI makes a call and keeps the body of its answer.
func callAPI[T any](ctx context.Context, do func(context.Context) (T, error)) (response[T], error) {
	var out response[T]
	var err error
	out.value, err = do(client.KeepBody(ctx, &out.raw))
	return out, err
}

// reportInterrupt reports that a stream was interrupted and is resumed.
func (a *Command) reportInterrupt(err error) {
	_, _ = fmt.Fprintf(a.Err, "%s; retrying\n", cli.EscapeName(err.Error()))
}
