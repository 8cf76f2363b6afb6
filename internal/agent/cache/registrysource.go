package cache

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/registrytoken"
	"github.com/buildyard/buildyard/internal/agent/vmconfig"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/metric"
	"github.com/buildyard/buildyard/internal/transfer"
)

// Registry is the Source of a real node: it pulls over HTTP from the registry in a version's Ref.
// It may be used from many goroutines.
type Registry struct {
	options     transfer.Options
	credentials Credentials
	pulledBytes metric.Counter // from registries
	peerBytes   metric.Counter // from other nodes
	openPeers   OpenPeers      // nil: nothing is read from other nodes

	mu      sync.Mutex
	clients map[string]*transfer.Client // address -> client
}

var _ Source = (*Registry)(nil)

// maxRegistries limits the cached clients: a cloud has one or two registries.
const maxRegistries = 8

// Credentials authenticate this node to the registry at an address. They may be used from many
// goroutines.
type Credentials interface {
	// Authorize adds the credential to a request that is about to be sent.
	Authorize(r *http.Request, address string) error
	// Renew is called when the registry answered 401 to such a request. It reports whether a new
	// Authorize may succeed.
	Renew(r *http.Request, address string) bool
}

// NewRegistry returns a source. o configures the connections to every registry; its BaseURL is not
// used. Without credentials, requests are anonymous.
func NewRegistry(o transfer.Options, creds Credentials) *Registry {
	return &Registry{options: o, credentials: creds, clients: map[string]*transfer.Client{}}
}

// OpenPeers finds the nodes that have, or pull, a version. end ends all requests to them.
type OpenPeers func(ctx context.Context, contentID string) (p transfer.Peers, end func())

// CountPull counts bytes that another process of this node has pulled.
func (r *Registry) CountPull(registry, peers int64) {
	r.pulledBytes.Add(registry)
	r.peerBytes.Add(peers)
}

// PeerBytes returns the bytes of versions that were read from other nodes.
func (r *Registry) PeerBytes() int64 { return int64(r.peerBytes.Value()) }

// UsePeers has pulls read from other nodes. It is called before the first pull.
func (r *Registry) UsePeers(open OpenPeers) { r.openPeers = open }

// Close drops idle connections.
func (r *Registry) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.clients {
		c.Close()
	}
	clear(r.clients)
	return nil
}

func (r *Registry) client(address string) (*transfer.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.clients[address]; c != nil {
		return c, nil
	}
	if len(r.clients) >= maxRegistries {
		for _, c := range r.clients {
			c.Close()
		}
		clear(r.clients)
	}
	o := r.options
	o.BaseURL = address
	if r.credentials != nil {
		o.Authorize = func(req *http.Request) error { return r.credentials.Authorize(req, address) }
		o.RenewCredentials = func(req *http.Request) bool { return r.credentials.Renew(req, address) }
	}
	c, err := transfer.New(o)
	if err != nil {
		return nil, err
	}
	r.clients[address] = c
	return c, nil
}

// SendLogRows sends rows for the central logs of a registry, once.
func (r *Registry) SendLogRows(ctx context.Context, address string, rows []api.LogRow) (api.LogAppendResult, error) {
	c, err := r.client(address)
	if err != nil {
		return api.LogAppendResult{}, err
	}
	return c.SendLogRows(registrytoken.WithPurpose(ctx, api.TokenPurpose{Rows: true}), rows)
}

// Upload stores a failure log of an instance below the files of a registry.
func (r *Registry) Upload(ctx context.Context, address, name string, content []byte) error {
	c, err := r.client(address)
	if err != nil {
		return err
	}
	instance := path.Base(path.Dir(name)) // logs/<instance id>/<file>
	return c.UploadFile(registrytoken.WithPurpose(ctx, api.TokenPurpose{Logs: instance}), name, content)
}

func transferRef(ref Ref) transfer.VersionRef {
	return transfer.VersionRef{ID: ref.TemplateID, ContentID: ref.ContentID}
}

// SpaceNeed asks the registry for the version's manifest.
func (r *Registry) SpaceNeed(ctx context.Context, ref Ref, have LocalContent) (SpaceNeed, error) {
	c, err := r.client(ref.Registry)
	if err != nil {
		return SpaceNeed{}, err
	}
	m, err := c.Manifest(registrytoken.WithPurpose(ctx, api.TokenPurpose{Pull: ref.TemplateID}), transferRef(ref))
	if err != nil {
		return SpaceNeed{}, err
	}
	if m.ContentID != ref.ContentID {
		return SpaceNeed{}, farm.Errorf(farm.CodeNoVersion, "version %s of template %s is no longer in the registry",
			ref.ContentID, ref.Name)
	}
	need := spaceNeedOf(m, have)
	need.setLazy(m)
	return need, nil
}

// setLazy sets what a lazy pull would fetch, where one is possible: VMs of macOS cannot read a disk that is not here, a
// process serves a disk as it is in its file, so that only raw ones can be served, and what is made from other versions
// is pulled as an overlay.
func (n *SpaceNeed) setLazy(m api.PullManifest) {
	var config api.TemplateConfig
	if json.Unmarshal(m.Config, &config) != nil || config.Apple != nil || len(n.ChainIDs) > 0 {
		return
	}
	for _, d := range config.HardDrives {
		if vmconfig.DiskFormat(d) != diskfile.FormatRaw {
			return
		}
	}
	for _, f := range m.Files {
		if f.Kind == api.FileDisk && f.Format != diskfile.FormatRaw && f.Format != "" {
			return
		}
	}
	n.Lazy = LazyMode(config.LazyPull)
	for _, f := range m.Files {
		for _, l := range f.Layers {
			n.LazyBytes += l.Size
		}
	}
}

// maxUnpackFactor limits how much larger than its layer a file may become: the compression in use gains at
// most a factor of 2 on real disks, and holes need no space.
const maxUnpackFactor = 3

// spaceNeedOf returns an upper estimate. The size of a file alone would be far too high for a raw disk,
// which is mostly holes.
func spaceNeedOf(m api.PullManifest, have LocalContent) SpaceNeed {
	var need SpaceNeed
	for _, f := range m.Files {
		held := countLocalLayers(f, have)
		if held > 0 {
			need.ChainIDs = append(need.ChainIDs, layerChainID(f.Layers[held-1]))
		}
		var stored int64
		for _, l := range f.Layers[held:] {
			stored += l.Size
		}
		need.Bytes += min(f.Size, maxUnpackFactor*stored)
	}
	return need
}

// countLocalLayers returns the number of a file's layers whose content is on this node, in a form that a
// pull can build upon.
func countLocalLayers(f api.PullFile, have LocalContent) int {
	for n := len(f.Layers); n > 0; n-- {
		d, ok := have[layerChainID(f.Layers[n-1])]
		if ok && (n == len(f.Layers) || len(d.Overlays) < transfer.MaxOverlays) {
			return n
		}
	}
	return 0
}

// layerChainID returns the chain ID of a chain up to a layer.
func layerChainID(l api.PullLayer) string { return cmp.Or(l.Tip, l.Root) }

// Fetch pulls the version into its directory.
func (r *Registry) Fetch(ctx context.Context, p Pull) (map[string]BuiltFile, error) {
	c, err := r.client(p.Ref.Registry)
	if err != nil {
		return nil, err
	}
	o := transfer.PullOptions{
		Ref: transferRef(p.Ref), Dir: p.DestDir, LocalContent: p.Local, AllowOverlays: true,
		Progress: func(t transfer.Progress) { p.Progress(t.Fraction()) },
	}
	if r.openPeers != nil {
		others, end := r.openPeers(ctx, p.Ref.ContentID)
		defer end()
		o.Peers, o.OnPartial = others, p.OnPartial
	}
	result, err := c.Pull(registrytoken.WithPurpose(ctx, api.TokenPurpose{Pull: p.Ref.TemplateID}), o)
	r.pulledBytes.Add(result.TransferredBytes)
	r.peerBytes.Add(result.PeerBytes)
	if err != nil {
		return nil, err
	}
	if got := result.Manifest.ContentID; got != p.Ref.ContentID {
		return nil, fmt.Errorf("registry returned version %s instead of %s", got, p.Ref.ContentID)
	}
	formats := map[string]string{}
	for _, f := range result.Manifest.Files {
		formats[f.Name] = f.Format
	}
	built := map[string]BuiltFile{}
	for _, f := range result.Files {
		built[f.Name] = BuiltFile{
			ChainID: f.ChainID, Format: formats[f.Name], Form: f.Form,
			BaseChainID: f.ParentChainID,
		}
	}
	return built, nil
}

// Authorization returns the value of the Authorization header for pulls of a template; "": the registry is asked
// without one. refused: the registry refused the last one.
func (r *Registry) Authorization(ctx context.Context, ref Ref, last string, refused bool) (string, error) {
	if r.credentials == nil {
		return "", nil
	}
	ctx = registrytoken.WithPurpose(ctx, api.TokenPurpose{Pull: ref.TemplateID})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ref.Registry, nil)
	if err != nil {
		return "", err
	}
	if refused {
		if last != "" {
			req.Header.Set(authorization, last)
		}
		r.credentials.Renew(req, ref.Registry)
		req.Header.Del(authorization)
	}
	if err := r.credentials.Authorize(req, ref.Registry); err != nil {
		return "", err
	}
	return req.Header.Get(authorization), nil
}

const authorization = "Authorization"

// Push publishes the version of a save in the registry at an address. The resume key names the save.
func (r *Registry) Push(ctx context.Context, address string, o transfer.PushOptions) (api.PushResult, error) {
	c, err := r.client(address)
	if err != nil {
		return api.PushResult{}, err
	}
	return c.Push(registrytoken.WithPurpose(ctx, api.TokenPurpose{Save: o.Request.ResumeKey}), o)
}

// Inspect returns the manifest of the version that a save has made in the registry at an address.
// It does not pull.
func (r *Registry) Inspect(
	ctx context.Context, address, save string, ref transfer.VersionRef,
) (api.PullManifest, error) {
	c, err := r.client(address)
	if err != nil {
		return api.PullManifest{}, err
	}
	return c.PeekManifest(registrytoken.WithPurpose(ctx, api.TokenPurpose{Save: save}), ref)
}
