# Compiles every attempt of no_bypass.cc: the first must compile, all others must not, and for the right reason.
set(last 17)
# Its only include takes far longer than an attempt: precompiled, in a folder of this test's own. Where that fails the
# attempts below say why.
file(MAKE_DIRECTORY ${FOLDER})
set(header ${FOLDER}/no_bypass.h)
file(WRITE ${header} "#include \"moe/experts.h\"\n")
set(compile ${COMPILER} -std=c++20 -I${ROOT}/src -I${ROOT}/include)
execute_process(COMMAND ${compile} -x c++-header ${header} -o ${header}.gch OUTPUT_QUIET ERROR_QUIET)
list(APPEND compile -fsyntax-only -include ${header})
foreach(attempt RANGE ${last})
  execute_process(
    COMMAND ${compile} -DATTEMPT=${attempt} ${ROOT}/tests/gate/no_bypass.cc
    RESULT_VARIABLE failed ERROR_VARIABLE text OUTPUT_QUIET)
  if(attempt EQUAL 0)
    if(failed)
      message(FATAL_ERROR "the proper way does not compile:\n${text}")
    endif()
  elseif(NOT failed)
    message(SEND_ERROR "attempt ${attempt} compiles: there is a way round the gate")
  elseif(NOT text MATCHES "private|no matching|read-only|not assignable|const-qualified|default constructor|cannot assign|deleted|implicitly|could not convert")
    message(SEND_ERROR "attempt ${attempt} fails for another reason:\n${text}")
  elseif(text MATCHES "no such attempt|No such file|expected ")
    message(SEND_ERROR "attempt ${attempt} is no attempt:\n${text}")
  endif()
endforeach()
# One more than the last is the #error: the list above is complete.
math(EXPR next "${last} + 1")
execute_process(
  COMMAND ${compile} -DATTEMPT=${next} ${ROOT}/tests/gate/no_bypass.cc
  ERROR_VARIABLE text OUTPUT_QUIET)
if(NOT text MATCHES "no such attempt")
  message(SEND_ERROR "no_bypass.cc has more attempts than no_bypass.cmake compiles")
endif()
