-- KEYS: the session's log. ARGV: replica, hint
redis.call('PUBLISH', 'vestibule:r:' .. ARGV[1], ARGV[2])
return 1
