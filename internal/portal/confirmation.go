package portal

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/portal/format"
)

// confirmation is what the form of an action on several records has to confirm.
type confirmation struct {
	All       bool // the action is about all records that match a filter when it is done
	Total     int  // of the records now
	One, Many string
	Nothing   string // that nothing has happened yet, as a sentence
}

// typedText returns the text that has to be typed where many records are concerned; "" elsewhere.
func (c confirmation) typedText() string {
	if c.Total <= typedFrom {
		return ""
	}
	return format.Confirm(c.Total, c.One, c.Many)
}

// refusal returns why a form does not confirm the action on the records as they are now; "": it does.
func (c confirmation) refusal(form url.Values) string {
	shown, err := strconv.Atoi(form.Get("shown"))
	switch {
	case c.All && err != nil:
		return "The form does not say how many " + c.Many + " it showed. " + c.Nothing +
			" Check them and confirm again."
	case c.All && c.Total > shown:
		return "The form was about fewer " + c.Many + ": " + format.Plural(c.Total, "matches", "match") + " now. " +
			c.Nothing + " Check them and confirm again."
	}
	if want := c.typedText(); want != "" && strings.TrimSpace(form.Get("typed")) != want {
		return "Type " + want + " to confirm. " + c.Nothing
	}
	return ""
}
