package buildnode

import (
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

// keyOptions are the options of joining with a user key. They never come from the environment.
type keyOptions struct {
	id, text, file string
}

// add puts the options of join on a command.
func (k *keyOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&k.id, "api-key-id", "", "id of a user key to join with, instead of the join token")
	fs.StringVar(&k.text, "api-key-string", "", "private key of that user key; other users of this machine may see it here")
	fs.StringVar(&k.file, "api-key-file", "", "file that only you can read with that private key; - reads standard input")
}

func (k *keyOptions) given() bool { return *k != keyOptions{} }

// userKey is a user key of a node, and how it is kept.
type userKey struct {
	creds *client.UserKey
	file  string // of its owner's; "": the text is kept in the home
	text  string
}

// read returns the key that the options name; nil when they name none.
func (k *keyOptions) read(in io.Reader) (*userKey, error) {
	switch {
	case !k.given():
		return nil, nil // there is none, which is no error
	case k.id == "" || (k.text == "") == (k.file == ""):
		return nil, cli.Usage(errors.New("a user key needs --api-key-id and either --api-key-file or --api-key-string"))
	}
	key, err := &userKey{text: k.text}, error(nil)
	if k.file != "" {
		if key.text, err = config.ReadSecret(k.file, in); err != nil {
			return nil, cli.Usage(fmt.Errorf("--api-key-file %s: %w", k.file, err))
		}
	}
	if k.file != "" && k.file != "-" {
		if key.file, err = absolute(k.file); err != nil {
			return nil, err
		}
	}
	if key.creds, err = client.ParseUserKey(k.id, key.text); err != nil {
		return nil, cli.Usage(err)
	}
	return key, nil
}

// readWho reads who makes a machine a node: the join token, or a user key instead of it, or
// nothing for somebody who has a certificate, or whom a port for nodes takes.
func readWho(token tokenOptions, key keyOptions, in io.Reader) (text string, own *userKey, err error) {
	switch {
	case token.given() && key.given():
		err = cli.Usage(errors.New("the join token and a user key are both given: give one"))
	case token.given():
		text, err = token.read(in)
	default:
		own, err = key.read(in)
	}
	return text, own, err
}

// keep remembers the key in an identity: the name of its file, which is one of the home when
// the text was given by itself. A key that the node had before goes.
func (k *userKey) keep(at datadir.Dir, id *datadir.Identity) error {
	id.Key = nil
	if k != nil {
		id.Key = &datadir.Key{ID: k.creds.ID(), File: k.file}
	}
	if k == nil || k.file != "" {
		if err := os.Remove(at.UserKey()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("forget the user key: %w", err)
		}
		return nil
	}
	id.Key.File = at.UserKey()
	if err := at.Make(); err != nil {
		return err
	}
	return datadir.WriteFile(at.UserKey(), []byte(k.text+"\n"))
}

// authorizer shows a user key to the controller that a node joins.
func (k *userKey) authorizer(id datadir.Identity) (func(*http.Request) error, error) {
	controller, err := client.NewController(id.Controller, clientOptions(k.creds, id.TLS))
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) error { return handshake("controller", controller.Authorize(r)) }, nil
}

// clientOptions are those of a client of this program.
func clientOptions(creds client.Credentials, tls datadir.TLS) client.Options {
	return client.Options{
		Credentials: creds, UserAgent: "buildnode",
		TLS: client.TLS{CAFile: tls.CA, CertFile: tls.Cert, KeyFile: tls.Key, SkipVerify: tls.Insecure},
	}
}

// handshake makes a failed handshake an error of the domain.
func handshake(service string, err error) error {
	switch client.CodeOf(err) {
	case client.ErrUnreachable, client.ErrUnavailable:
		return farm.Unavailable(err, "The %s cannot be reached", service) // a later attempt may do
	case client.ErrUnauthenticated:
		return farm.Errorf(farm.CodeUnauthenticated, "%s", err.Error())
	default:
		return err
	}
}

// nodeKey shows the user key of a node to registries. Its file is read when it is needed first.
type nodeKey struct {
	key datadir.Key
	tls datadir.TLS

	mu         sync.Mutex // guards the fields below
	creds      *client.UserKey
	registries map[string]*client.Registry // address -> client
}

var _ registrytoken.Credentials = (*nodeKey)(nil)

// ownKeyOf returns the key that a node has joined with; nil for none.
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

// maxOwn bounds the clients that are kept: a cloud has one registry or two.
const maxOwn = 8

func (k *nodeKey) registry(address string) (*client.Registry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.registries[address]; r != nil {
		return r, nil
	}
	var err error
	if k.creds == nil {
		if k.creds, err = client.LoadUserKey(k.key.ID, k.key.File); err != nil {
			return nil, farm.Errorf(farm.CodeUnauthenticated, "The user key of this node cannot be used: %v; join again with it", err)
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
