package main

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
)

// patience bounds one request.
const patience = 20 * time.Second

// mostRead bounds what is read of an answer: some never end.
const mostRead = 64 << 10

// answer is what came back.
type answer struct {
	code   int
	header http.Header
	body   []byte
	cookie string // that it sets
}

// envelope returns status and message of an answer.
func (a answer) envelope() (e struct {
	Status, Message string
	Body            json.RawMessage
},
) {
	_ = json.Unmarshal(a.body, &e)
	return e
}

// send makes one request: what is method and address, header is names and values in turn.
func send(ctx context.Context, by *http.Client, what, body string, header ...string) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	method, url, _ := strings.Cut(what, " ")
	req, err := http.NewRequestWithContext(ctx, method, url, in)
	if err != nil {
		return a, err
	}
	for pair := range slices.Chunk(header, 2) {
		if req.Header.Add(pair[0], pair[1]); pair[0] == "Host" {
			req.Host = pair[1]
		}
	}
	resp, err := by.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	a.code, a.header = resp.StatusCode, resp.Header
	for _, c := range resp.Cookies() {
		a.cookie = c.Name + "=" + c.Value
	}
	if a.code >= http.StatusBadRequest {
		a.body, err = io.ReadAll(io.LimitReader(resp.Body, mostRead))
	} else if !endless(resp) {
		a.body, err = io.ReadAll(io.LimitReader(resp.Body, mostRead))
	}
	return a, err
}

// endless reports whether a response may continue for as long as a client reads.
func endless(resp *http.Response) bool {
	return resp.ContentLength < 0 && !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") &&
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html")
}

// basic is the header of the root user.
func basic(user, token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+token))
}

// asRoot makes a request of the root user, which must succeed, and returns the body of its
// response.
func (s *deployment) asRoot(ctx context.Context, service, method, path string, in any) (json.RawMessage, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	a, err := send(ctx, s.plain, method+" "+s.addresses[service]+path, string(raw), "Authorization",
		basic("root", s.root))
	if err != nil {
		return nil, err
	}
	e := a.envelope()
	if a.code != http.StatusOK || e.Status != "OK" {
		return nil, fmt.Errorf("%s %s of the %s: %d %s", method, path, service, a.code, e.Message)
	}
	return e.Body, nil
}

// join makes a node.
func (s *deployment) join(ctx context.Context, token, name string) (member, error) {
	raw, err := json.Marshal(map[string]any{"protocol": 1, "token": token, "name": name, "host": "127.0.0.1"})
	if err != nil {
		return member{}, err
	}
	a, err := send(ctx, s.plain, "POST "+s.addresses[controller]+"/queue/v1/join", string(raw))
	if err != nil {
		return member{}, err
	}
	var got struct {
		ID         string `json:"node_id"`
		Credential string `json:"credential"`
	}
	if err := json.Unmarshal(a.envelope().Body, &got); err != nil || got.ID == "" {
		return member{}, fmt.Errorf("join: %d %s", a.code, a.envelope().Message)
	}
	s.secrets.Note("credential of a node", got.Credential)
	return member{got.ID, got.Credential}, nil
}

// nodeToken asks for the token of a node for a purpose, once.
func (s *deployment) nodeToken(ctx context.Context, n member, purpose string) (string, error) {
	if token := s.tokens[n.id+purpose]; token != "" {
		return token, nil
	}
	body := `{"protocol":1,"node_id":"` + n.id + `"` + purpose + `}`
	a, err := send(ctx, s.plain, "POST "+s.addresses[controller]+"/queue/v1/pass", body, "Authorization",
		"Bearer "+n.credential)
	if err != nil {
		return "", err
	}
	var got struct {
		Pass string `json:"pass"`
	}
	if err := json.Unmarshal(a.envelope().Body, &got); err != nil || got.Pass == "" {
		return "", fmt.Errorf("the token of a node for %q: %d %s", purpose, a.code, a.envelope().Message)
	}
	s.tokens[n.id+purpose] = s.secrets.Note("token of a node", got.Pass)
	return got.Pass, nil
}

// template is a template of one layer in the registry.
type template struct{ id, layer string }

// named puts into a path or a body what it names for a caller.
func (s *deployment) named(text string, c caller) string {
	t := template{"99999999-0000-4000-8000-000000000009", strings.Repeat("0", 64)}
	switch {
	case c.scope != nil && c.scope.right:
		t = s.held
	case c.scope != nil:
		t = s.other
	}
	return strings.NewReplacer(theTemplate, t.id, theLayer, t.layer).Replace(text)
}

// order makes two templates and orders a node to cache one of them, once.
func (s *deployment) order(ctx context.Context) (err error) {
	if s.ordered.id != "" {
		return nil
	}
	for i, t := range []*template{&s.held, &s.other} {
		if *t, err = s.pushTemplate(ctx, byte(i+1)); err != nil {
			return err
		}
	}
	ordered, err := s.join(ctx, s.token, "told")
	if err != nil {
		return err
	}
	_, err = s.asRoot(ctx, controller, "POST", "/api/v1/registry/vm/distribute",
		map[string]any{"template_id": s.held.id, "node_ids": []string{ordered.id}})
	s.ordered = ordered
	return err
}

// pushTemplate pushes a small disk as a template.
func (s *deployment) pushTemplate(ctx context.Context, content byte) (t template, err error) {
	file := filepath.Join(s.dir, fmt.Sprintf("disk%d.img", content))
	if err := os.WriteFile(file, bytes.Repeat([]byte{content}, 1<<16), 0o600); err != nil {
		return t, err
	}
	client, err := transfer.New(transfer.Options{
		BaseURL: s.addresses[registry], TLS: &tls.Config{RootCAs: certstest.Pool(s.ca), MinVersion: tls.VersionTLS12},
		Authorize: func(r *http.Request) error {
			r.SetBasicAuth("root", s.root)
			return nil
		},
	})
	if err != nil {
		return t, err
	}
	defer client.Close()
	roots := map[string]string{}
	result, err := client.Push(ctx, transfer.PushOptions{
		Request: api.PushRequest{
			Name: fmt.Sprint("matrix ", content), Tag: "v1", Arch: "amd64",
			Config: json.RawMessage(
				`{"ram":"1G","cpu":{"cores":1},"hard_drives":[{"file":"disk.img","format":"raw"}]}`),
		},
		Files: []transfer.PushFile{
			{Name: "disk.img", Kind: api.FileDisk, Disk: &diskfile.Disk{Path: file, Format: "raw"}},
		},
		LayerDigests: roots,
	})
	return template{result.ID, roots["disk.img"]}, err
}

// groupPath is where permission groups are.
const groupPath = "/admin/api/v1/permission/group/"

// ensureGroup makes a permission group, of both services where they have permissions, with the
// permissions in its name.
func (s *deployment) ensureGroup(ctx context.Context, group string) error {
	if s.groups[group] {
		return nil
	}
	for _, service := range []string{controller, registry} {
		list := meant(service, group)
		if len(list) == 0 || !s.sides[service].auth {
			continue
		}
		if _, err := s.asRoot(ctx, service, "POST", groupPath+group, map[string]any{"permissions": list}); err != nil {
			return err
		}
	}
	s.groups[group] = true
	return nil
}

// meant returns the permissions that a group has at a service by its name: only-P, or only-P+Q with
// Q at the registry, but-P, every.
func meant(service, group string) (list []string) {
	one, also, _ := strings.Cut(strings.TrimPrefix(group, "only-"), "+")
	for _, p := range printed[service] {
		switch {
		case group == "every", strings.HasPrefix(group, "but-") && group != "but-"+p,
			strings.HasPrefix(group, "only-") &&
				(p == one && (also == "" || service == controller) || p == also && service == registry):
			list = append(list, p)
		}
	}
	return list
}

// granted returns what the members of a group may do at the service of a row, and at the registry
// where the controller asks it for them.
func granted(r row, group string) (list, there []string) {
	return meant(r.service, group), meant(registry, group)
}

// keyPath is where a service has its API keys.
func keyPath(service string) string {
	if service == registry {
		return "/v1/apikey"
	}
	return "/api/v1/apikey"
}

// bearer returns the session of a key whose only group is given, at a service.
func (s *deployment) bearer(ctx context.Context, service, group string) (string, error) {
	id := service + " " + group
	if value := s.sessions[id]; value != "" {
		return value, nil
	}
	if err := s.ensureGroup(ctx, group); err != nil {
		return "", err
	}
	store := service
	if !s.split {
		store = controller // both have the same
	}
	if key := store + " " + group; !s.keys[key] {
		if err := s.addKey(ctx, store, "key-"+group, group); err != nil {
			return "", err
		}
		s.keys[key] = true
	}
	value, err := s.handshake(ctx, s.plain, s.addresses[service], "key-"+group)
	s.sessions[id] = value
	return value, err
}

// addKey makes an API key with the pair that all share.
func (s *deployment) addKey(ctx context.Context, service, id string, groups ...string) error {
	_, err := s.asRoot(ctx, service, "POST", keyPath(service),
		map[string]any{"id": id, "ttl": 3600, "groups": append([]string{}, groups...), "publicKey": s.public})
	return err
}

// handshake turns an API key into a Bearer value, as the contract has it.
func (s *deployment) handshake(ctx context.Context, by *http.Client, address, id string) (string, error) {
	secret, err := s.hand(ctx, by, address, id)
	if err != nil {
		return "", err
	}
	a, err := shake(ctx, by, address, id, secret)
	if err != nil {
		return "", err
	}
	return s.sessionOf(a)
}

// sessionOf reads the answer to a shake.
func (s *deployment) sessionOf(a answer) (string, error) {
	var got struct {
		ID   string
		Data json.RawMessage
	}
	if err := json.Unmarshal(a.body, &got); err != nil || a.code != http.StatusOK || got.Data == nil {
		return "", fmt.Errorf("shake: %d %w", a.code, errors.Join(err, errors.New("there is no session")))
	}
	var data struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal(got.Data, &data); err != nil {
		return "", err
	}
	s.secrets.Note("token of a session", data.Token)
	var text bytes.Buffer
	if err := json.Compact(&text, got.Data); err != nil {
		return "", err
	}
	return "Bearer " + s.secrets.Note("session", base64.StdEncoding.EncodeToString(text.Bytes())), nil
}

// hand asks for a secret and decrypts it.
func (s *deployment) hand(ctx context.Context, by *http.Client, address, id string) (string, error) {
	a, err := send(ctx, by, "POST "+address+"/tap/v1/hand", `{"id":"`+id+`"}`)
	if err != nil {
		return "", err
	}
	raw, err := base64.StdEncoding.DecodeString(string(a.body)) // nothing stands around it
	if err != nil || a.code != http.StatusOK {
		return "", fmt.Errorf("hand of %s: %d %w", id, a.code, errors.Join(err, errors.New("there is no secret")))
	}
	plain, err := rsa.DecryptOAEP(sha256.New(), nil, s.private, raw, nil)
	return s.secrets.Note("secret of a hand", string(plain)), err
}

func shake(ctx context.Context, by *http.Client, address, id, secret string) (answer, error) {
	return send(ctx, by, "POST "+address+"/tap/v1/shake", `{"id":"`+id+`","secret":"`+secret+`"}`)
}

// logIn returns the cookie of a browser of the root user.
func (s *deployment) logIn(ctx context.Context, service string) (string, error) {
	if s.cookie[service] != "" {
		return s.cookie[service], nil
	}
	raw, err := json.Marshal(map[string]string{"token": s.root})
	if err != nil {
		return "", err
	}
	a, err := send(ctx, s.plain, "POST "+s.addresses[service]+"/login", string(raw))
	if err != nil || a.cookie == "" {
		return "", fmt.Errorf("log-in: %d %s: %w", a.code, a.envelope().Message,
			errors.Join(err, errors.New("there is no cookie")))
	}
	_, value, _ := strings.Cut(a.cookie, "=")
	s.secrets.Note("cookie", value)
	s.cookie[service] = a.cookie
	return a.cookie, nil
}
