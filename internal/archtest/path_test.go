package archtest

import (
	"reflect"
	"strings"
)

// packagePath is this package's import path as compiled.
func packagePath() string { return strings.TrimSuffix(reflect.TypeFor[Rules]().PkgPath(), "_test") }
