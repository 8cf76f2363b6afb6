package hostscan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/obs"
	"github.com/buildyard/buildyard/internal/rest/hostrest/push"
	"github.com/buildyard/buildyard/internal/scan/host"
)

// pushToNode is the value of push-url for the controller of the node on this host.
const pushToNode = "node"

// minPushInterval is the minimum time between two sends of findings.
const minPushInterval = 10 * time.Second

// checkPush returns an error for invalid push settings.
func (s settings) checkPush() error {
	if s.PushURL == "" {
		for _, f := range []struct{ name, value string }{
			{"push-node", s.PushNode},
			{"push-key-id", s.PushKeyID},
			{"push-key-file", s.PushKeyFile},
			{"push-ca-file", s.PushCAFile},
		} {
			if f.value != "" {
				return fmt.Errorf("%s requires push-url", f.name)
			}
		}
		return nil
	}
	if u, err := url.Parse(s.PushURL); s.PushURL != pushToNode &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return errors.New("invalid push-url: want the URL of a controller such as https://build.example:8090, or node")
	}
	if s.PushNode != "" && uuid.Validate(s.PushNode) != nil {
		return fmt.Errorf("invalid push-node %q: want the ID of a node", s.PushNode)
	}
	if (s.PushKeyID == "") != (s.PushKeyFile == "") {
		return errors.New("push-key-id and push-key-file must be set together")
	}
	_, err := s.pushInterval()
	return err
}

func (s settings) pushInterval() (time.Duration, error) {
	d, err := time.ParseDuration(s.PushInterval)
	if err != nil || d < minPushInterval {
		return 0, fmt.Errorf("invalid push-interval %q: want a duration of at least 10s, such as 1m", s.PushInterval)
	}
	return d, nil
}

// addPushSender creates the sender of findings, if one is configured, and connects it to the scanner.
func (v *service) addPushSender(o *host.Options) {
	if v.settings.PushURL == "" {
		return
	}
	every, _ := v.settings.pushInterval() // already checked
	name, _ := os.Hostname()
	v.push = push.New(push.Options{
		HostName: cmp.Or(name, "unknown"), Version: obs.FullVersion(), Interval: every, Target: v.settings.pushTarget,
		Log: v.log.Logger,
	})
	onChange := o.OnChange
	o.OnEnd = v.push.NotifyEnd
	o.OnChange = func(e host.Event) {
		v.push.Notify(e)
		if onChange != nil {
			onChange(e)
		}
	}
}

// nodeIdentity is the identity of the node on this host, as its agent stores it.
type nodeIdentity struct {
	NodeID     string `json:"node_id"`
	Credential string `json:"credential"` // secret
	Controller string `json:"controller"`
	TLS        struct {
		Insecure bool   `json:"insecure"`
		Cert     string `json:"cert"`
		Key      string `json:"key"`
		CA       string `json:"ca"`
	} `json:"tls"`
}

// maxIdentityBytes bounds its file in bytes.
const maxIdentityBytes = 1 << 20

// readNodeIdentity reads the identity of the node on this host from a private file.
func readNodeIdentity(path string) (m nodeIdentity, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("node identity %s not found: join this host to a cloud, or set push-node and push-key-id",
			path)
	}
	if err != nil {
		return m, err
	}
	defer f.Close()
	if err := config.CheckPrivate(f); err != nil {
		return m, fmt.Errorf("%s: %w", path, err)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxIdentityBytes))
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil || m.NodeID == "" {
		return m, fmt.Errorf("%s has no node ID and credential", path) // the file may contain a secret
	}
	return m, nil
}

// pushTarget returns the current destination of findings.
func (s settings) pushTarget() (push.Target, error) {
	var m nodeIdentity
	if s.PushURL == pushToNode || s.PushKeyID == "" || s.PushNode == "" {
		var err error
		if m, err = readNodeIdentity(s.PushNodeFile); err != nil {
			return push.Target{}, err
		}
	}
	node := cmp.Or(s.PushNode, m.NodeID)
	if s.PushKeyID == "" && node != m.NodeID {
		return push.Target{},
			fmt.Errorf(
				"push-node is not the ID of the node on this host, %s; set push-key-id to report for another node",
				m.NodeID)
	}
	address, trust := s.PushURL, client.TLS{CAFile: s.PushCAFile}
	if address == pushToNode {
		address = m.Controller
		trust = client.TLS{CAFile: cmp.Or(s.PushCAFile,
			m.TLS.CA), CertFile: m.TLS.Cert, KeyFile: m.TLS.Key, SkipVerify: m.TLS.Insecure}
	}
	address = strings.TrimRight(address, "/")
	if s.PushKeyID != "" {
		return s.apiKeyTarget(address, node, trust)
	}
	t, err := trust.Config()
	if err != nil {
		return push.Target{}, err
	}
	return push.Target{
		URL: address + api.PathScan, Node: node, Method: http.MethodPost,
		Authorize: func(r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+m.Credential)
			return nil
		},
		Client: &http.Client{
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: t},
			CheckRedirect: noRedirects,
		},
	}, nil
}

// noRedirects disables redirects, which would lose the body.
func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// apiKeyTarget is pushTarget for an API key.
func (s settings) apiKeyTarget(address, node string, trust client.TLS) (push.Target, error) {
	private, err := readSecret(s.PushKeyFile, maxIdentityBytes,
		func(f *os.File) error { return config.CheckPrivate(f) })
	if err != nil {
		return push.Target{}, fmt.Errorf("push-key-file: %w", err)
	}
	key, err := client.ParseAPIKey(s.PushKeyID, private)
	if err != nil {
		return push.Target{}, fmt.Errorf("push-key-file: %w", err)
	}
	c, err := client.NewController(address,
		client.Options{Credentials: key, TLS: trust, UserAgent: "buildyard-hostscan"})
	if err != nil {
		return push.Target{}, err
	}
	t, err := trust.Config()
	if err != nil {
		return push.Target{}, err
	}
	return push.Target{
		URL: address + "/api/v1/node/scan?id=" + url.QueryEscape(node), Node: node, Method: http.MethodPut,
		Authorize: c.Authorize,
		Client: &http.Client{
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: t},
			CheckRedirect: noRedirects,
		},
	}, nil
}
