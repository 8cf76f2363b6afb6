package buildnode

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/spf13/pflag"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/registrytoken"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/farm"
)

// keyOptions are the options of an API key. They never come from the environment.
type keyOptions struct {
	id, text, file string
	fileOrText     string // the flag --api-key, which --api-key-file and --api-key-string replace
}

// add adds the options to a command.
func (k *keyOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&k.id, "api-key-id", "", "API key ID, instead of a token")
	fs.StringVar(&k.text, "api-key-string", "", "private key of that API key; visible to other users of this machine")
	fs.StringVar(&k.file, "api-key-file", "", "private file with that private key; - reads standard input")
	fs.StringVar(&k.fileOrText, "api-key", "", "private file with that private key, or the private key")
	_ = fs.MarkHidden("api-key")
}

func (k *keyOptions) given() bool { return *k != keyOptions{} }

// privateKey returns the file that has the private key, or its text.
func (k *keyOptions) privateKey() (file, text string, err error) {
	file, text = k.file, k.text
	if k.fileOrText == "-" || isFile(k.fileOrText) {
		file = cmp.Or(file, k.fileOrText)
	} else {
		text = cmp.Or(text, k.fileOrText)
	}
	if k.id == "" || (text == "") == (file == "") {
		err = cli.Usage(errors.New("an API key requires --api-key-id and either --api-key-file or --api-key-string"))
	}
	return file, text, err
}

// joinKey is an API key of a node, and how it is stored.
type joinKey struct {
	creds *client.APIKey
	file  string // its owner's file; "": the text is stored in the data directory
	text  string
}

// read returns the key that the options name; nil without such options.
func (k *keyOptions) read(in io.Reader) (*joinKey, error) {
	if !k.given() {
		return nil, nil // no key, which is not an error
	}
	file, text, err := k.privateKey()
	if err != nil {
		return nil, err
	}
	key := &joinKey{text: text}
	if file != "" {
		if key.text, err = config.ReadSecret(file, in); err != nil {
			return nil, cli.Usage(fmt.Errorf("read --api-key-file %s: %w", file, err))
		}
	}
	if file != "" && file != "-" {
		if key.file, err = absolute(file); err != nil {
			return nil, err
		}
	}
	if key.creds, err = client.ParseAPIKey(k.id, key.text); err != nil {
		if k.fileOrText != "" && file == "" {
			err = fmt.Errorf("%w; --api-key is not the name of a file either", err)
		}
		return nil, cli.Usage(err)
	}
	return key, nil
}

// readCredential reads the credential for joining: the join token, or an API key instead of it, or none
// for a node that has a certificate, or where anonymous nodes may join.
func readCredential(token tokenOptions, key keyOptions, in io.Reader) (text string, own *joinKey, err error) {
	switch {
	case token.given() && key.given():
		err = cli.Usage(errors.New("--token and --api-key-id are mutually exclusive"))
	case token.given():
		text, err = token.read(in)
	default:
		own, err = key.read(in)
	}
	return text, own, err
}

// keep stores the key in an identity: the name of its file, which is one in the data directory when
// the text was given without a file. An earlier key of the node is removed.
func (k *joinKey) keep(at datadir.Dir, id *datadir.Identity) error {
	id.Key = nil
	if k != nil {
		id.Key = &datadir.Key{ID: k.creds.ID(), File: k.file}
	}
	if k == nil || k.file != "" {
		if err := os.Remove(at.KeyFile()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the API key: %w", err)
		}
		return nil
	}
	id.Key.File = at.KeyFile()
	if err := at.Make(); err != nil {
		return err
	}
	return datadir.WriteFile(at.KeyFile(), []byte(k.text+"\n"))
}

// authorizer returns a function that authenticates requests to the node's controller with an API key.
func (k *joinKey) authorizer(id datadir.Identity) (func(*http.Request) error, error) {
	controller, err := client.NewController(id.Controller, clientOptions(k.creds, id.TLS))
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) error { return handshake("controller", controller.Authorize(r)) }, nil
}

// clientOptions returns the options of this program's clients.
func clientOptions(creds client.Credentials, tls datadir.TLS) client.Options {
	return client.Options{
		Credentials: creds, UserAgent: "buildnode",
		TLS: client.TLS{CAFile: tls.CA, CertFile: tls.Cert, KeyFile: tls.Key, SkipVerify: tls.Insecure},
	}
}

// handshake converts a failed handshake to an error of the domain.
func handshake(service string, err error) error {
	switch client.CodeOf(err) {
	case client.ErrUnreachable, client.ErrUnavailable:
		return farm.Unavailable(err, "The %s cannot be reached", service) // a later attempt may succeed
	case client.ErrUnauthenticated:
		return farm.Errorf(farm.CodeUnauthenticated, "%s", err.Error())
	default:
		return err
	}
}

// nodeKey authenticates to registries with the API key of a node. Its file is read at the first use.
type nodeKey struct {
	key datadir.Key
	tls datadir.TLS

	mu         sync.Mutex // guards the fields below
	creds      *client.APIKey
	registries map[string]*client.Registry // address -> client
}

var _ registrytoken.Credentials = (*nodeKey)(nil)

// ownKeyOf returns the key that a node joined with; nil for none.
func ownKeyOf(id datadir.Identity) registrytoken.Credentials {
	if id.Key == nil {
		return nil
	}
	return &nodeKey{key: *id.Key, tls: id.TLS, registries: map[string]*client.Registry{}}
}

// Authorize implements registrytoken.Credentials.
func (k *nodeKey) Authorize(r *http.Request, address string) error {
	registry, err := k.registry(address)
	if err != nil {
		return err
	}
	return handshake("registry", registry.Authorize(r))
}

// Renew implements registrytoken.Credentials.
func (k *nodeKey) Renew(r *http.Request, address string) bool {
	registry, err := k.registry(address)
	return err == nil && registry.Renew(r)
}

// maxOwn limits the cached clients: a cloud has one or two registries.
const maxOwn = 8

func (k *nodeKey) registry(address string) (*client.Registry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.registries[address]; r != nil {
		return r, nil
	}
	var err error
	if k.creds == nil {
		if k.creds, err = client.LoadAPIKey(k.key.ID, k.key.File); err != nil {
			return nil, farm.Errorf(farm.CodeUnauthenticated,
				"The API key of this node cannot be used: %v; join again with it", err)
		}
	}
	r, err := client.NewRegistry(address, clientOptions(k.creds, k.tls))
	if err != nil {
		return nil, err
	}
	if len(k.registries) >= maxOwn {
		clear(k.registries)
	}
	k.registries[address] = r
	return r, nil
}
