package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Unbuilt is a setting that clients of this API family know and this program cannot
// honour yet. It is refused at the start: an operator who asks for authentication
// must not get an open service.
type Unbuilt struct {
	Key     string // a trailing * stands for any ending
	Feature string // what brings it, in words
	Already string // the value that asks for what the program does anyway; "" for none
}

// Features that are not built yet, as the refusal names them.
const (
	authentication = "authentication and authorization"
	tls            = "TLS"
	nodeInterface  = "a node interface on a port of its own"
	objectStore    = "registry storage on S3"
	addresses      = "separate registry addresses"
	cors           = "cross-origin requests"
	modes          = "the choice of a mode (the store is embedded unless SVC_ETCD_ENDPOINTS is given)"
	listCache      = "a cache of the template list (lists are read from memory)"
)

// AllUnbuilt lists them. A setting moves from here to a service's table when it is built.
var AllUnbuilt = []Unbuilt{
	{Key: "SVC_ENABLE_AUTH", Feature: authentication, Already: "false"},
	{Key: "SVC_ROOT_TOKEN", Feature: authentication},
	{Key: "SVC_ENABLE_API_KEYS", Feature: authentication, Already: "false"},
	{Key: "SVC_API_KEYS_SESSION_TTL", Feature: authentication},
	{Key: "SVC_API_KEY_ID", Feature: authentication},
	{Key: "SVC_API_KEY_STRING", Feature: authentication},
	{Key: "SVC_CA_CERT", Feature: authentication},
	{Key: "SVC_CRL", Feature: authentication},
	{Key: "SVC_ENABLE_CONTROLLER_AUTHORIZATION", Feature: authentication, Already: "false"},
	{Key: "SVC_ENABLE_REGISTRY_AUTHORIZATION", Feature: authentication, Already: "false"},
	{Key: "SVC_ENABLE_AUTHORIZATION", Feature: authentication, Already: "false"},
	{Key: "SVC_ENABLE_RESOURCE_MANAGEMENT", Feature: authentication, Already: "false"},
	{Key: "SVC_ENABLE_INGRESS_NGINX", Feature: authentication, Already: "false"},
	{Key: "SVC_OIDC_CLIENT_ID", Feature: authentication},
	{Key: "SVC_OIDC_CLIENT_SECRET", Feature: authentication},
	{Key: "SVC_OIDC_PROVIDER_URL", Feature: authentication},
	{Key: "SVC_OIDC_DISPLAY_NAME", Feature: authentication},
	{Key: "SVC_OIDC_USERNAME_CLAIM", Feature: authentication},
	{Key: "SVC_OIDC_GROUPS_CLAIM", Feature: authentication},
	{Key: "SVC_OIDC_SCOPES", Feature: authentication},
	{Key: "SVC_USE_HTTPS", Feature: tls, Already: "false"},
	{Key: "SVC_SERVER_CERT", Feature: tls},
	{Key: "SVC_SERVER_KEY", Feature: tls},
	{Key: "SVC_SKIP_TLS_VERIFICATION", Feature: tls, Already: "false"},
	{Key: "SVC_MIN_TLS_VERSION", Feature: tls},
	{Key: "SVC_QUEUE_ADDR", Feature: nodeInterface},
	{Key: "SVC_ENABLE_QUEUE_AUTH", Feature: nodeInterface, Already: "false"},
	{Key: "SVC_USE_QUEUE_TLS", Feature: nodeInterface, Already: "false"},
	{Key: "SVC_QUEUE_SERVER_CERT", Feature: nodeInterface},
	{Key: "SVC_QUEUE_SERVER_KEY", Feature: nodeInterface},
	{Key: "SVC_QUEUE_CA_CERT", Feature: nodeInterface},
	{Key: "SVC_QUEUE_CRL", Feature: nodeInterface},
	{Key: "SVC_BACKEND_TYPE", Feature: objectStore, Already: "disk"},
	{Key: "SVC_BACKEND_S3_*", Feature: objectStore},
	{Key: "SVC_LOCAL_LISTEN_ADDR", Feature: addresses},
	{Key: "SVC_ALLOW_CORS", Feature: cors, Already: "false"},
	{Key: "SVC_STANDALONE", Feature: modes},
	{Key: "SVC_VM_LIST_CACHE_TTL", Feature: listCache},
}

// unbuilt finds the entry of a key, which may also name the file of a secret.
func unbuilt(key string) (Unbuilt, bool) {
	for _, u := range AllUnbuilt {
		prefix, open := strings.CutSuffix(u.Key, "*")
		if key == u.Key || key == u.Key+fileSuffix || (open && strings.HasPrefix(key, prefix)) {
			return u, true
		}
	}
	return Unbuilt{}, false
}

// refuseUnbuilt is the error for a given setting that the program cannot honour.
// Open endings are found in the file only: the environment is asked by name.
func (l *loader) refuseUnbuilt(table Table) error {
	var keys []string
	for _, u := range AllUnbuilt {
		keys = append(keys, u.Key, u.Key+fileSuffix)
	}
	keys = append(keys, slices.Sorted(maps.Keys(l.file))...)
	for _, key := range keys {
		u, ok := unbuilt(key)
		if !ok || table.declares(key) {
			continue
		}
		for _, origin := range []Origin{FromEnv, FromFile} {
			text := l.lookup(key, origin)
			if text == "" || u.already(text) {
				continue
			}
			return fmt.Errorf("%s is given, but this version cannot honour it: %s is not built yet; remove the setting to start without it (%s)",
				key, u.Feature, whence(Setting{}, value{origin: origin}))
		}
	}
	return nil
}

// declares says whether a key, or the secret whose file it names, is in the table.
func (t Table) declares(key string) bool {
	if _, ok := t.find(key); ok {
		return true
	}
	_, ok := t.find(strings.TrimSuffix(key, fileSuffix))
	return ok
}

// already says whether a value asks for what the program does anyway.
func (u Unbuilt) already(text string) bool {
	if u.Already == "" {
		return false
	}
	want, err := strconv.ParseBool(u.Already)
	if err != nil {
		return text == u.Already
	}
	got, err := strconv.ParseBool(text)
	return err == nil && got == want
}
