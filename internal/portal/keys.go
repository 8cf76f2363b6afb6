package portal

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/portal/format"
)

func (p *portal) accessPages() []page {
	return []page{
		{pattern: "/keys", templateName: "keys", title: "API keys", buildView: listKeys},
		{
			pattern: "/permission-groups", templateName: "permissions", title: "Permission groups",
			buildView: listPermissionGroups,
		},
		{
			pattern: "/admin/ui", templateName: "permissions", title: "Permission groups",
			buildView: listPermissionGroups,
		},
	}
}

func (p *portal) accessActions() []action {
	return []action{
		{
			pattern: "/keys/create", templateName: "keyform", title: "Create API key", buildForm: askCreateKey,
			perform: doCreateKey,
		},
		{
			pattern: "/keys/change", templateName: "keyform", title: "Change API key", buildForm: askChangeKey,
			perform: doChangeKey,
		},
		{
			pattern: "/keys/delete", templateName: "keydelete", title: "Delete API key", buildForm: askDeleteKey,
			perform: doDeleteKey,
		},
		{
			pattern: "/permission-groups/edit", templateName: "permissionform", title: "Permission group",
			buildForm: askPermissions,
			perform:   doPermissions,
		},
		{
			pattern: "/permission-groups/delete", templateName: "permissiondelete", title: "Delete permission group",
			buildForm: askDeletePermissions, perform: doDeletePermissions,
		},
	}
}

// keyList is the page of the keys.
type keyList struct {
	Disabled     bool   // callers do not have to log in, or there are no keys
	HiddenReason string // why they are not shown
	Rows         []keyRow
	CurlCommand  string
}

// keyRow is a key in the list.
type keyRow struct {
	ID, Groups       string
	Created, Expires time.Time
	Left             string // how long it is good; "": no more
}

const pathKeys = "/api/v1/apikey"

func listKeys(v *visit) (any, error) {
	list := keyList{Disabled: !v.loginRequired, CurlCommand: curlCommand(v, "GET", pathKeys, "")}
	if list.Disabled {
		return list, nil
	}
	keys, err := v.Keys(v)
	if client.CodeOf(err) == client.ErrUnauthenticated {
		return nil, err
	}
	list.HiddenReason = notShownReason(err)
	slices.SortFunc(keys, func(a, b api.Key) int { return cmp.Compare(a.ID, b.ID) })
	for _, k := range keys {
		row := keyRow{ID: k.ID, Groups: strings.Join(k.Groups, ", "), Created: k.Created, Expires: k.Expiration}
		if left := k.Expiration.Sub(v.now); left > 0 {
			row.Left = format.Duration(left)
		}
		list.Rows = append(list.Rows, row)
	}
	return list, nil
}

// keyForm is the form of a key.
type keyForm struct {
	ID          string // "": a new one
	Groups      string
	KnownGroups []string // names of permission groups
	CurlCommand string
}

// knownGroups are the names of permission groups, as far as the visitor may see them.
func knownGroups(v *visit) (names []string) {
	groups, err := v.PermissionGroups(v)
	if err != nil {
		return nil
	}
	for _, g := range groups {
		names = append(names, g.Name)
	}
	return names
}

func askCreateKey(v *visit) (any, error) {
	if !v.loginRequired {
		return nil, &client.Error{Code: client.ErrRefused, Message: "Authentication is disabled, so there are no keys."}
	}
	if denied := v.canDo().DeniedReason("make key", ""); denied != "" {
		return nil, &client.Error{Code: client.ErrForbidden, Message: denied + "."}
	}
	return keyForm{KnownGroups: knownGroups(v), CurlCommand: curlCommand(v, "POST", pathKeys,
		`{"id":"ci","ttl":31536000,"groups":["ci"]}`)}, nil
}

// daysAsSeconds reads for how many days a key is good.
func daysAsSeconds(v *visit) (int64, error) {
	days, err := strconv.Atoi(v.query.Get("days"))
	if err != nil || days < 1 || days > 36500 {
		return 0, formError("invalid validity: want a number of days, at least 1")
	}
	return int64(days) * 86400, nil
}

func doCreateKey(v *visit) (actionResult, error) {
	id := strings.TrimSpace(v.query.Get("id"))
	ttl, err := daysAsSeconds(v)
	if err != nil {
		return actionResult{}, err
	}
	private, err := v.CreateKey(v,
		api.NewKey{
			ID: id, TTL: ttl, Groups: splitNames(v.query.Get("groups")),
			PublicKey: strings.TrimSpace(v.query.Get("public")),
		})
	if err != nil {
		return actionResult{}, err
	}
	out := actionResult{
		Back: "/keys", Items: []itemResult{{Name: id, Said: "Key created. The owner of the private key can use it."}},
	}
	if text := private.Reveal(); text != "" {
		out.Items[0].Said = "Key created"
		out.OneTimeSecret = &secret{"Private key", text}
	}
	return out, nil
}

func askChangeKey(v *visit) (any, error) {
	k, err := v.Key(v, v.query.Get("id"))
	if err != nil {
		return nil, err
	}
	return keyForm{ID: k.ID, Groups: strings.Join(k.Groups,
		", "), KnownGroups: knownGroups(v), CurlCommand: curlCommand(v, "PUT", pathKeys,
		format.JSON(client.KeyChange{ID: k.ID, Groups: []string{"ci"}}))}, nil
}

func doChangeKey(v *visit) (actionResult, error) {
	k, err := v.Key(v, v.query.Get("id"))
	if err != nil {
		return actionResult{}, err
	}
	change := client.KeyChange{ID: k.ID, Groups: rebaseSelection(v.query, "groups", k.Groups,
		splitNames(v.query.Get("groups")))}
	if v.query.Get("days") != "" {
		if change.TTL, err = daysAsSeconds(v); err != nil {
			return actionResult{}, err
		}
	}
	return actionResult{ResultPath: "/keys"}, v.UpdateKey(v, change)
}

func askDeleteKey(v *visit) (any, error) {
	k, err := v.Key(v, v.query.Get("id"))
	if err != nil {
		return nil, err
	}
	body := format.JSON(map[string]string{"id": k.ID})
	return keyForm{ID: k.ID, CurlCommand: curlCommand(v, "DELETE", pathKeys, body)}, nil
}

func doDeleteKey(v *visit) (actionResult, error) {
	return actionResult{ResultPath: "/keys"}, v.DeleteKey(v, v.query.Get("id"))
}
