package main

import (
	"slices"
	"strings"
)

// optionKind is what follows an option.
type optionKind int

const (
	noValue optionKind = iota
	takesValue
)

// optionTable has the options of a command, without their hyphens.
type optionTable map[string]optionKind

// call is a parsed command line.
type call struct {
	*library
	verb     string
	options  map[string][]string // an option without a value has ""
	operands []string
	rest     []string
}

// parseCall reads options and operands in any order.
func parseCall(l *library, name string, v verb, args []string) (*call, error) {
	c := &call{library: l, verb: name, options: map[string][]string{}}
	for len(args) > 0 && (!v.rest || len(c.operands) < v.operands) {
		arg := args[0]
		args = args[1:]
		if !strings.HasPrefix(arg, "-") || arg == "-" {
			c.operands = append(c.operands, arg)
			continue
		}
		option, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		kind, known := v.options[option]
		switch {
		case !known:
			return nil, fail(codeUsage, "No such option: %s", arg)
		case kind == takesValue && !hasValue && len(args) == 0:
			return nil, fail(codeUsage, "Option '%s' requires an argument.", arg)
		case kind == takesValue && !hasValue:
			value, args = args[0], args[1:]
		}
		c.options[option] = append(c.options[option], value)
	}
	c.rest = args
	switch n := len(c.operands); {
	case n < v.operands, v.rest && len(c.rest) == 0:
		return nil, fail(codeUsage, "Missing argument.")
	case n > max(v.operands, v.most):
		return nil, fail(codeUsage, "Got unexpected extra argument (%s)", c.operands[max(v.operands, v.most)])
	}
	return c, nil
}

// operand returns an operand; "" if there are fewer.
func (c *call) operand(i int) string {
	if i >= len(c.operands) {
		return ""
	}
	return c.operands[i]
}

// has reports whether one of the names of an option is given.
func (c *call) has(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return len(c.options[name]) > 0 })
}

// value returns the last value of the first option that is given, or "".
func (c *call) value(names ...string) string {
	for _, name := range names {
		if values := c.options[name]; len(values) > 0 {
			return values[len(values)-1]
		}
	}
	return ""
}
